#include "tessera/comm/c10d/c10d_store.h"

#include <filesystem>
#include <thread>
#include <vector>

#include <sys/stat.h>
#include <unistd.h>

#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "tessera/base/check.h"
#include "tessera/comm/c10d/listener.h"
#include "tessera/comm/comm_error.h"

namespace tessera::detail {
namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;
using StorePtr = c10::intrusive_ptr<c10d::Store>;

class C10dKeyStore : public KeyStore {
 public:
  explicit C10dKeyStore(StorePtr store) : store_(std::move(store)) {}

  void set(const std::string& key, const std::string& value) override { store_->set(key, value); }

  std::optional<std::string> find(const std::string& key) override {
    if (!store_->check({key})) return std::nullopt;
    return store_->get_to_str(key);
  }

  std::int64_t add(const std::string& key, std::int64_t amount) override {
    return store_->add(key, amount);
  }

  std::unique_ptr<KeyStore> clone() override {
    return std::make_unique<C10dKeyStore>(store_->clone());
  }

 private:
  StorePtr store_;
};

StorePtr open_file_store(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  struct stat info {};
  const bool exists = stat(folder.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
  TESSERA_CHECK(exists, "launch: rendezvous file ", path, " given, but its folder does not exist");
  constexpr unsigned kOthers = S_IRWXG | S_IRWXO;
  TESSERA_CHECK(info.st_uid == geteuid() && (info.st_mode & kOthers) == 0,
                "launch: rendezvous file ", path,
                " given in a folder that others may enter; use one of mode 0700 of your own");
  // With a number of workers it would remove the file when as many clients have gone, clones
  // included.
  return c10::make_intrusive<c10d::FileStore>(path, /*numWorkers=*/-1);
}

[[noreturn]] void throw_unreachable(std::int64_t rank, const Rendezvous& rendezvous,
                                    const std::string& why, Clock::time_point begin) {
  const auto elapsed = std::chrono::duration_cast<Milliseconds>(Clock::now() - begin);
  throw CommError(concat("nobody serves the rendezvous at ", address_text(rendezvous), ", ",
                         port_text(rendezvous), ": ", why),
                  {rank, "world", "rendezvous", elapsed});
}

StorePtr open_tcp_store(std::int64_t rank, const Rendezvous& rendezvous,
                        Clock::time_point deadline) {
  const auto begin = Clock::now();
  const Endpoint endpoint = resolve(rendezvous);
  const bool serves = rank == 0 && !rendezvous.agent_serves_store;
  c10d::TCPStoreOptions options;
  options.port = rendezvous.port;
  options.isServer = serves;
  options.waitWorkers = false;
  if (serves) {
    options.masterListenFd = bind_listener(endpoint, rendezvous);
  } else {
    // A client that comes too early would wait a whole second before it tries again.
    while (endpoint.is_loopback && !is_listened_on(rendezvous.port)) {
      if (Clock::now() > deadline) {
        throw_unreachable(rank, rendezvous, "rank 0, which serves it, did not come", begin);
      }
      std::this_thread::sleep_for(Milliseconds(2));
    }
  }
  const auto left = std::chrono::duration_cast<Milliseconds>(deadline - Clock::now());
  options.timeout = std::max(left, Milliseconds(100));
  try {
    return c10::make_intrusive<c10d::TCPStore>(endpoint.host, options);
  } catch (const std::exception& error) {
    const std::string words = error.what();
    throw_unreachable(rank, rendezvous, words.substr(0, words.find('\n')), begin);
  }
}

}  // namespace

StorePtr open_store(std::int64_t rank, const Rendezvous& rendezvous, Clock::time_point deadline) {
  const StorePtr store = rendezvous.file.empty() ? open_tcp_store(rank, rendezvous, deadline)
                                                 : open_file_store(rendezvous.file);
  return prefixed(store, concat("tessera/", rendezvous.generation));
}

StorePtr prefixed(const StorePtr& store, const std::string& prefix) {
  return c10::make_intrusive<c10d::PrefixStore>(prefix, store);
}

std::unique_ptr<KeyStore> make_key_store(StorePtr store) {
  return std::make_unique<C10dKeyStore>(std::move(store));
}

}  // namespace tessera::detail
