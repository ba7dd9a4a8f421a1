#include "tessera/comm/c10d/registration.h"

#include <algorithm>
#include <optional>
#include <sstream>
#include <thread>

#include "tessera/base/check.h"
#include "tessera/comm/comm_error.h"

namespace tessera::detail {
namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

constexpr const char* kRefusal = "refusal";

std::string entry_key(std::int64_t rank) { return concat("rank/", rank); }

/// What a rank says about itself when it registers.
struct Entry {
  std::int64_t size = 0;
  bool check = true;
  std::int64_t timeout_ms = 0;
  ProcessIdentity process;
};

std::string encode(const Entry& entry) {
  return concat(entry.size, ' ', entry.check ? 1 : 0, ' ', entry.timeout_ms, ' ',
                encode(entry.process));
}

Entry decode_entry(const std::string& line) {
  std::istringstream fields(line);
  Entry entry;
  std::string rest;
  fields >> entry.size >> entry.check >> entry.timeout_ms >> std::ws;
  std::getline(fields, rest);
  TESSERA_INTERNAL_CHECK(!fields.fail(), "registration '", line, "' cannot be read");
  entry.process = decode_process(rest);
  return entry;
}

/// Sleeps a little longer each time.
class Pause {
 public:
  void take() {
    std::this_thread::sleep_for(length_);
    length_ = std::min(2 * length_, Milliseconds(20));
  }

 private:
  Milliseconds length_{1};
};

class Registration {
 public:
  Registration(KeyStore& store, std::int64_t rank, std::int64_t size, const Rendezvous& rendezvous,
               const WorldOptions& options)
      : store_(store),
        rank_(rank),
        rendezvous_(rendezvous),
        own_{size, effective_options(options).check, options.timeout.count(), this_process()},
        entries_(static_cast<std::size_t>(size)) {}

  /// Claims the rank.
  void enter() {
    if (store_.add(concat("claims/", rank_), 1) != 1) {
      const auto other = store_.find(entry_key(rank_));
      refuse(concat(rendezvous_.rank_name, "=", rank_, " given to ", own_.process.to_string(),
                    ", but ", other ? decode_entry(*other).process.to_string() : "another process",
                    " has this rank already; give every process its own",
                    rendezvous_.file.empty() ? "" : ", and every run a file that does not exist"));
    }
    store_.set(entry_key(rank_), encode(own_));
  }

  /// True when everybody is there and agrees.
  [[nodiscard]] bool look() {
    if (const auto refusal = store_.find(kRefusal)) throw_refusal(*refusal);
    while (next_ < entries_.size()) {
      const auto line = store_.find(entry_key(static_cast<std::int64_t>(next_)));
      if (!line) break;
      entries_[next_] = decode_entry(*line);
      compare(static_cast<std::int64_t>(next_), *entries_[next_]);
      ++next_;
    }
    return next_ == entries_.size();
  }

  [[nodiscard]] std::string missing() {
    std::vector<std::int64_t> ranks;
    for (std::size_t i = next_; i < entries_.size(); ++i) {
      const auto rank = static_cast<std::int64_t>(i);
      if (!store_.find(entry_key(rank))) ranks.push_back(rank);
    }
    return concat(ranks.size() == 1 ? "rank " : "ranks ", joined(ranks, ", "), " of ",
                  rendezvous_.size_name, "=", own_.size, " did not come");
  }

  [[nodiscard]] std::vector<ProcessIdentity> processes() const {
    std::vector<ProcessIdentity> result;
    for (const auto& entry : entries_) result.push_back(entry->process);
    return result;
  }

 private:
  void compare(std::int64_t rank, const Entry& entry) {
    if (entry.size != own_.size) {
      refuse(concat(rendezvous_.size_name, "=", own_.size, " given to rank ", rank_, ", but ",
                    entry.size, " to rank ", rank, "; give all ranks the same"));
    }
    if (entry.check != own_.check) {
      refuse(concat("checks are ", own_.check ? "on" : "off", " on rank ", rank_, " and ",
                    entry.check ? "on" : "off", " on rank ", rank,
                    "; give all ranks the same TESSERA_CHECK and WorldOptions::check"));
    }
  }

  /// Throws here, and on the others that are still waiting.
  [[noreturn]] void refuse(const std::string& why) {
    store_.set(kRefusal, why);
    throw_refusal(why);
  }

  [[noreturn]] static void throw_refusal(const std::string& why) {
    throw InvalidArgument(concat("launch: ", why));
  }

  KeyStore& store_;
  std::int64_t rank_;
  const Rendezvous& rendezvous_;
  Entry own_;
  std::vector<std::optional<Entry>> entries_;
  std::size_t next_ = 0;
};

}  // namespace

std::vector<ProcessIdentity> register_rank(KeyStore& store, std::int64_t rank, std::int64_t size,
                                           const Rendezvous& rendezvous,
                                           const WorldOptions& options, Clock::time_point begin) {
  const auto fail = [&](const std::string& why) {
    const auto elapsed = std::chrono::duration_cast<Milliseconds>(Clock::now() - begin);
    throw CommError(why, {rank, "world", "rendezvous", elapsed});
  };
  try {
    Registration registration(store, rank, size, rendezvous, options);
    registration.enter();
    Pause pause;
    while (!registration.look()) {
      if (Clock::now() > begin + options.timeout) fail(registration.missing());
      pause.take();
    }
    return registration.processes();
  } catch (const Error&) {
    throw;
  } catch (const std::exception&) {
    fail(concat("the rendezvous at ", rendezvous.address, ':', rendezvous.port,
                " cannot be reached any more; who serves it, rank 0 or the launcher, is gone"));
    throw;
  }
}

bool meet(KeyStore& store, const std::string& key, const std::vector<std::int64_t>& ranks,
          std::int64_t rank, Clock::time_point deadline, const std::function<void()>& look_around) {
  store.set(concat(key, '/', rank), "");
  Pause pause;
  std::size_t next = 0;
  while (true) {
    while (next < ranks.size() && store.find(concat(key, '/', ranks[next]))) ++next;
    if (next == ranks.size()) return true;
    if (Clock::now() > deadline) return false;
    look_around();
    pause.take();
  }
}

}  // namespace tessera::detail
