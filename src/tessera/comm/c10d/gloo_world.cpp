#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <numeric>
#include <thread>
#include <utility>

#include <ATen/ops/empty.h>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "tessera/base/check.h"
#include "tessera/comm/c10d/c10d_store.h"
#include "tessera/comm/c10d/c10d_transport.h"
#include "tessera/comm/c10d/channel.h"
#include "tessera/comm/c10d/engines.h"
#include "tessera/comm/c10d/gloo_costs.h"
#include "tessera/comm/c10d/listener.h"
#include "tessera/comm/c10d/process_world.h"
#include "tessera/comm/c10d/registration.h"
#include "tessera/comm/c10d/solo_transport.h"
#include "tessera/comm/c10d/store_board.h"
#include "tessera/comm/comm_error.h"

// Note [Gloo headers]
// The wheel of libtorch ships no gloo headers; Debian's, which are years older than the gloo inside
// of it, are used to compile ProcessGroupGloo.hpp. So nothing here may construct, derive from or
// look into a gloo type: devices are made by libtorch and only passed on. `self_test` proves that
// it works.

namespace tessera::detail {
namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;
using StorePtr = c10::intrusive_ptr<c10d::Store>;
using Device = decltype(c10d::ProcessGroupGloo::createDeviceForInterface(""));

/// The network interface for gloo's connections: the one that leads to the rendezvous.
Device make_device(const Rendezvous& rendezvous) {
  if (const char* name = std::getenv("GLOO_SOCKET_IFNAME")) {
    return c10d::ProcessGroupGloo::createDeviceForInterface(name);
  }
  if (!rendezvous.file.empty()) return c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1");
  const Endpoint endpoint = resolve(rendezvous);
  return c10d::ProcessGroupGloo::createDeviceForHostname(local_address_towards(endpoint));
}

/// gloo writes to connections whose other end may be gone, which would end the process by default.
void ignore_broken_pipes() {
  struct sigaction action {};
  sigaction(SIGPIPE, nullptr, &action);
  if (action.sa_handler == SIG_DFL) std::signal(SIGPIPE, SIG_IGN);
}

class GlooWorld : public ProcessWorld {
 public:
  GlooWorld(std::int64_t size, const WorldOptions& options, std::shared_ptr<Peers> peers,
            StorePtr store, Device device, bool serves_store)
      : ProcessWorld(size, options, std::move(peers)),
        store_(std::move(store)),
        keys_(store_ ? make_key_store(store_) : nullptr),
        device_(std::move(device)),
        serves_store_(serves_store) {}

  ~GlooWorld() override {
    const std::string reason = post_end();
    if (!reason.empty() || !peers()->first_failure().empty()) {
      peers()->board().refresh(Milliseconds(100));
      close_transports();
      if (serves_store_) peers()->wait_until_alone(kFarewell, kFarewell);
      return;
    }
    // What was sent to others must reach them before connections close, and who serves the store
    // must stay as long as others may need it.
    constexpr std::chrono::hours kForever{24 * 365};
    peers()->wait_until_alone(serves_store_ ? kForever : options().timeout, options().timeout);
    close_transports();
  }
  GlooWorld(const GlooWorld&) = delete;
  GlooWorld& operator=(const GlooWorld&) = delete;

  [[nodiscard]] const char* engine() const override { return "gloo"; }

  [[nodiscard]] CostModel cost_model() const override { return kGlooCosts; }

  std::unique_ptr<Transport> make_transport(const GroupState& group) override {
    if (group.ranks.size() == 1) return make_solo_transport(engine());
    const auto& watch = watch_of(group);
    const WatchedCall call = watch->begin("connect");
    const std::string key = concat("group/", joined(group.ranks, ","));
    try {
      gather_members(*watch, call, key);
      const auto left = call.begin + options().timeout - Clock::now();
      auto channel = std::make_shared<Channel>(
          make_group(prefixed(store_, concat(key, "/gloo")), group,
                     std::max(std::chrono::duration_cast<Milliseconds>(left), Milliseconds(100))),
          BackendTraits{.engine = engine(), .polls_collectives = true, .exchanges_small = true},
          watch);
      return std::make_unique<C10dTransport>(std::move(channel),
                                             static_cast<std::size_t>(group.index));
    } catch (const CommError&) {
      throw;
    } catch (const std::exception& error) {
      watch->fail(call, error.what());
    }
  }

 private:
  /// Waits for all members, so that connecting them takes no time and needs no watching.
  void gather_members(GroupWatch& watch, const WatchedCall& call, const std::string& key) {
    const auto look_around = [&] {
      const auto waited = std::chrono::duration_cast<Milliseconds>(Clock::now() - call.begin);
      if (watch.is_hopeless(call, waited)) watch.fail(call, "");
    };
    const bool met =
        meet(*keys_, key, watch.ranks(), rank(), call.begin + options().timeout, look_around);
    if (!met) watch.fail(call, "");
    watch.end_wait();
  }

  [[nodiscard]] c10::intrusive_ptr<c10d::Backend> make_group(const StorePtr& store,
                                                             const GroupState& group,
                                                             Milliseconds limit) const {
    auto gloo = c10d::ProcessGroupGloo::Options::create(limit);
    gloo->devices.push_back(device_);
    return c10::make_intrusive<c10d::ProcessGroupGloo>(store, static_cast<int>(group.index),
                                                       static_cast<int>(group.ranks.size()),
                                                       std::move(gloo));
  }

  StorePtr store_;
  std::unique_ptr<KeyStore> keys_;
  Device device_;
  bool serves_store_;
};

/// Registers the rank. When that fails, who serves the store stays for a moment, so that the others
/// can read why.
std::vector<ProcessIdentity> register_or_stay(KeyStore& keys, std::int64_t rank, std::int64_t size,
                                              const Rendezvous& rendezvous,
                                              const WorldOptions& options, Clock::time_point begin,
                                              bool serves_store) {
  try {
    return register_rank(keys, rank, size, rendezvous, options, begin);
  } catch (const Error&) {
    constexpr Milliseconds kStay{300};
    if (serves_store) std::this_thread::sleep_for(kStay);
    throw;
  }
}

/// See Note [Gloo headers].
void self_test(Transport& transport, std::int64_t rank, std::int64_t size) {
  const at::Tensor sums = at::empty({5}, at::kFloat);
  sums.fill_(static_cast<double>(rank + 1));
  transport.all_reduce(sums, ReduceOp::sum)->wait();
  // Rank r sends r + 1 numbers to everybody.
  const at::Tensor sent = at::empty({size * (rank + 1)}, at::kLong);
  sent.fill_(rank);
  std::vector<std::int64_t> receive_counts(static_cast<std::size_t>(size));
  std::iota(receive_counts.begin(), receive_counts.end(), std::int64_t{1});
  const std::vector<std::int64_t> send_counts(static_cast<std::size_t>(size), rank + 1);
  const at::Tensor received = at::empty({size * (size + 1) / 2}, at::kLong);
  transport.all_to_all(received, sent, receive_counts, send_counts)->wait();
  bool right = sums.eq(static_cast<double>(size * (size + 1) / 2)).all().item<bool>();
  const auto* next = received.const_data_ptr<std::int64_t>();
  for (std::int64_t from = 0; from < size; ++from) {
    for (std::int64_t i = 0; i <= from; ++i) right = right && *next++ == from;
  }
  if (right) return;
  throw Error(
      "launch: gloo's self-test gave wrong numbers: the gloo headers that Tessera was compiled "
      "with do not fit this libtorch; install another libgloo-dev and rebuild, or use another "
      "engine");
}

}  // namespace

bool has_gloo() { return true; }

std::shared_ptr<WorldState> make_gloo_world(std::int64_t rank, std::int64_t size,
                                            const Rendezvous& rendezvous,
                                            const WorldOptions& options) {
  TESSERA_CHECK(size >= 1 && rank >= 0 && rank < size, "launch: ", rendezvous.rank_name, "=", rank,
                ", ", rendezvous.size_name, "=", size, " given; ranks are numbered from 0 to ",
                rendezvous.size_name, " - 1");
  if (size == 1) {
    auto alone = std::make_shared<Peers>(0, std::vector<ProcessIdentity>{this_process()},
                                         std::make_shared<NoBoard>());
    return std::make_shared<GlooWorld>(1, options, std::move(alone), StorePtr(), Device(), false);
  }
  ignore_broken_pipes();
  const auto begin = Clock::now();
  const StorePtr store = open_store(rank, rendezvous, begin + options.timeout);
  const auto keys = make_key_store(store);
  const bool has_server = rendezvous.file.empty() && !rendezvous.agent_serves_store;
  const bool serves = has_server && rank == 0;
  auto processes = register_or_stay(*keys, rank, size, rendezvous, options, begin, serves);
  const std::string server = has_server                ? "rank 0"
                             : rendezvous.file.empty() ? "the launcher"
                                                       : rendezvous.file;
  auto board = std::make_shared<StoreBoard>(keys->clone(), rank, size, server);
  auto peers = std::make_shared<Peers>(rank, std::move(processes), std::move(board));
  auto world = std::make_shared<GlooWorld>(size, options, std::move(peers), store,
                                           make_device(rendezvous), serves);
  self_test(connect(World(world).group()), rank, size);
  return world;
}

}  // namespace tessera::detail
