#include <algorithm>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>

#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>

#include "tessera/base/check.h"
#include "tessera/comm/comm_error.h"
#include "tessera/comm/threads/thread_transport.h"
#include "tessera/comm/world_state.h"

namespace tessera {
namespace detail {
namespace {

class ThreadWorld : public WorldState {
 public:
  ThreadWorld(std::int64_t rank, std::int64_t size, const WorldOptions& options,
              std::shared_ptr<ThreadHub> hub)
      : WorldState(rank, size, options), hub_(std::move(hub)) {}

  [[nodiscard]] const char* engine() const override { return "threads"; }

  // Waking the ranks costs most, one more peer next to nothing, and there are no buffers to pack.
  [[nodiscard]] CostModel cost_model() const override {
    return {.launch_ps = 10'000'000, .message_ps = 100'000, .byte_ps = 100, .packed_byte_ps = 0};
  }

  std::unique_ptr<Transport> make_transport(const GroupState& group) override {
    return std::make_unique<ThreadTransport>(hub_, hub_->group(group.ranks, group.name.get()),
                                             static_cast<std::size_t>(group.index),
                                             options().timeout);
  }

 private:
  std::shared_ptr<ThreadHub> hub_;
};

/// The exception of the rank that threw first, which is the cause of the others'.
class FirstFailure {
 public:
  void set(std::int64_t rank, std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    if (error_ != nullptr) return;
    rank_ = rank;
    error_ = std::move(error);
  }

  /// Rethrows it, if there is one, with the rank in its message.
  void rethrow() const {
    if (error_ == nullptr) return;
    try {
      std::rethrow_exception(error_);
    } catch (const CommError&) {
      throw;  // Names its rank already.
    } catch (const InvalidArgument& error) {
      std::throw_with_nested(InvalidArgument(concat("rank ", rank_, ": ", error.what())));
    } catch (const std::exception& error) {
      std::throw_with_nested(Error(concat("rank ", rank_, ": ", error.what())));
    } catch (...) {
      std::throw_with_nested(Error(concat("rank ", rank_, " threw something unknown")));
    }
  }

 private:
  std::mutex mutex_;
  std::int64_t rank_ = -1;
  std::exception_ptr error_;
};

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    return known.what();
  } catch (...) {
    return "an unknown exception";
  }
}

/// The ranks share the cores, unless the user has decided: more threads than that only get in each
/// other's way.
void share_cores(std::int64_t ranks) {
  if (std::getenv("OMP_NUM_THREADS") != nullptr) return;
  const auto cores = static_cast<std::int64_t>(std::thread::hardware_concurrency());
  at::set_num_threads(static_cast<int>(std::max<std::int64_t>(1, cores / ranks)));
}

void run_rank(const std::shared_ptr<ThreadHub>& hub, std::int64_t rank, std::int64_t size,
              const std::function<void(World&)>& fn, const WorldOptions& options,
              FirstFailure& failure) {
  share_cores(size);
  // Autocast's cache of cast weights is one for the process, and whoever leaves autocast first clears
  // it: the other ranks would then cast, and differentiate, more often than that one.
  at::autocast::set_autocast_cache_enabled(false);
  try {
    const auto state = std::make_shared<ThreadWorld>(rank, size, options, hub);
    const CurrentWorld current(state);
    World world(state);
    fn(world);
    hub->finish(rank);
  } catch (...) {
    const auto error = std::current_exception();
    failure.set(rank, error);
    hub->fail(rank, text_of(error));
  }
}

/// The thread of `first` could not be started: nor will those behind it be. Those that run already
/// learn that they wait in vain.
void give_up_from(std::int64_t first, std::int64_t size, const std::system_error& error,
                  ThreadHub& hub, FirstFailure& failure) {
  const std::string why =
      concat("run_ranks: the thread of rank ", first, " of ", size, " could not be started (",
             error.what(), "); ask for fewer ranks, or raise the limits on threads and memory");
  failure.set(first, std::make_exception_ptr(Error(why)));
  for (std::int64_t rank = first; rank < size; ++rank) hub.fail(rank, why);
}

}  // namespace
}  // namespace detail

void run_ranks(std::int64_t ranks, const std::function<void(World&)>& fn,
               const WorldOptions& options) {
  TESSERA_CHECK(ranks >= 1, "run_ranks: ", ranks, " ranks given; there must be at least 1");
  const auto hub = std::make_shared<detail::ThreadHub>(ranks);
  detail::FirstFailure failure;
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(ranks));
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    try {
      threads.emplace_back([&, rank] { detail::run_rank(hub, rank, ranks, fn, options, failure); });
    } catch (const std::system_error& error) {
      detail::give_up_from(rank, ranks, error, *hub, failure);
      break;
    }
  }
  for (auto& thread : threads) thread.join();
  failure.rethrow();
}

}  // namespace tessera
