#include <algorithm>
#include <cstdlib>
#include <utility>

#include "tessera/base/check.h"
#include "tessera/base/hash.h"
#include "tessera/comm/c10d/c10d_transport.h"
#include "tessera/comm/c10d/channel.h"
#include "tessera/comm/c10d/engines.h"
#include "tessera/comm/c10d/process_world.h"
#include "tessera/comm/c10d/solo_transport.h"
#include "tessera/comm/comm_error.h"
#include "tessera/comm/mpi/mpi_backend.h"
#include "tessera/comm/mpi/mpi_board.h"
#include "tessera/comm/mpi/mpi_runtime.h"

namespace tessera::detail {
namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

Milliseconds since(Clock::time_point begin) {
  return std::chrono::duration_cast<Milliseconds>(Clock::now() - begin);
}

/// Lets the members of a group find each other before they make its communicator together, which
/// MPI can only do in a call that waits forever for those that do not come.
class MpiMeeting {
 public:
  MpiMeeting(const MpiRuntime& runtime, const std::vector<std::int64_t>& ranks)
      : runtime_(runtime), ranks_(ranks) {
    // Two groups that the same ranks make at a time must not be taken for each other.
    constexpr int kFirstTag = 16;
    constexpr int kTags = 32'000;
    tag_ = kFirstTag + static_cast<int>(hash_range(ranks) % kTags);
  }

  /// `keep_waiting` is called from time to time, and throws when there is no hope.
  template <typename KeepWaiting>
  void hold(const KeepWaiting& keep_waiting) {
    // Everybody reports to the first member, who then lets everybody go.
    const auto first = static_cast<int>(ranks_.front());
    if (runtime_.rank() == first) {
      for (const auto rank : others()) receive(rank);
      wait(keep_waiting);
      for (const auto rank : others()) send(rank);
    } else {
      send(first);
      receive(first);
    }
    wait(keep_waiting);
  }

 private:
  [[nodiscard]] std::vector<int> others() const { return {ranks_.begin() + 1, ranks_.end()}; }

  void send(int rank) {
    check_mpi(MPI_Isend(nullptr, 0, MPI_CHAR, rank, tag_, runtime_.control(), next()), "MPI_Isend");
  }

  void receive(int rank) {
    check_mpi(MPI_Irecv(nullptr, 0, MPI_CHAR, rank, tag_, runtime_.control(), next()), "MPI_Irecv");
  }

  [[nodiscard]] MPI_Request* next() { return &requests_.requests.emplace_back(MPI_REQUEST_NULL); }

  template <typename KeepWaiting>
  void wait(const KeepWaiting& keep_waiting) {
    MpiBackoff backoff;
    auto looked = Clock::now();
    while (!requests_.test()) {
      backoff.pause();
      if (since(looked) < GroupWatch::kLookInterval) continue;
      keep_waiting();
      looked = Clock::now();
    }
  }

  const MpiRuntime& runtime_;
  const std::vector<std::int64_t>& ranks_;
  int tag_ = 0;
  MpiRequests requests_;
};

class MpiWorld : public ProcessWorld {
 public:
  MpiWorld(const WorldOptions& options, std::shared_ptr<Peers> peers,
           std::shared_ptr<MpiRuntime> runtime)
      : ProcessWorld(runtime->size(), options, std::move(peers)), runtime_(std::move(runtime)) {}

  ~MpiWorld() override {
    std::string reason = post_end();
    if (reason.empty()) reason = peers()->first_failure();
    if (!reason.empty()) {
      // MPI cannot go on, nor end as it should. Others may still be finding out for themselves.
      peers()->wait_until_alone(kFarewell, kFarewell);
      runtime_->abort(reason);
    }
    constexpr std::chrono::hours kForever{24 * 365};
    peers()->wait_until_alone(kForever, kForever);
    const auto begin = Clock::now();
    while (!runtime_->is_quiet() && since(begin) < options().timeout) MpiBackoff().pause();
    if (!runtime_->is_quiet()) runtime_->abort("operations that nobody waited for never completed");
    close_transports();
    runtime_->finalize();
  }
  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;

  [[nodiscard]] const char* engine() const override { return "mpi"; }

  /// Measured in shared memory.
  [[nodiscard]] CostModel cost_model() const override {
    return {.launch_ps = 5'000'000, .message_ps = 1'000'000, .byte_ps = 500, .packed_byte_ps = 200};
  }

  std::unique_ptr<Transport> make_transport(const GroupState& group) override {
    if (group.ranks.size() == 1) return make_solo_transport(engine());
    const auto& watch = watch_of(group);
    const WatchedCall call = watch->begin("connect");
    auto channel = std::make_shared<Channel>(make_backend(group, *watch, call),
                                             BackendTraits{.engine = engine(),
                                                           .polls_collectives = true,
                                                           .polls_messages = true,
                                                           .takes_uneven_lists = true},
                                             watch);
    return std::make_unique<C10dTransport>(std::move(channel),
                                           static_cast<std::size_t>(group.index));
  }

 private:
  /// Makes a group's communicator, when all members have come.
  [[nodiscard]] c10::intrusive_ptr<c10d::Backend> make_backend(const GroupState& group,
                                                               GroupWatch& watch,
                                                               const WatchedCall& call) const {
    try {
      MpiMeeting(*runtime_, group.ranks).hold([&] {
        const auto waited = since(call.begin);
        if (waited >= options().timeout || watch.is_hopeless(call, waited)) watch.fail(call, "");
      });
      watch.end_wait();
      return make_mpi_backend(runtime_, group.ranks, group.index, most_elements());
    } catch (const CommError&) {
      throw;
    } catch (const std::exception& error) {
      watch.fail(call, error.what());
    }
  }

  /// What is longer goes in pieces; tests make it short.
  [[nodiscard]] static std::int64_t most_elements() {
    const char* value = std::getenv("TESSERA_MPI_MOST_ELEMENTS");
    return value == nullptr ? kMostInt : std::max<std::int64_t>(1, std::atoll(value));
  }

  std::shared_ptr<MpiRuntime> runtime_;
};

/// Returns all ranks' processes, after making sure that they have the same options.
std::vector<ProcessIdentity> introduce(const MpiRuntime& runtime, const WorldOptions& options) {
  const auto texts =
      runtime.all_gather_text(concat(options.check ? 1 : 0, ' ', encode(this_process())));
  std::vector<ProcessIdentity> processes;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    TESSERA_CHECK(texts[i][0] == texts[0][0],
                  "launch: checks are on on some ranks and off on others (", "rank 0 and rank ", i,
                  "); give all ranks the same TESSERA_CHECK and WorldOptions::check");
    processes.push_back(decode_process(std::string_view(texts[i]).substr(2)));
  }
  return processes;
}

}  // namespace

bool has_mpi() { return true; }

std::shared_ptr<WorldState> make_mpi_world(const WorldOptions& options) {
  auto runtime = std::make_shared<MpiRuntime>();
  auto processes = introduce(*runtime, effective_options(options));
  auto peers = std::make_shared<Peers>(runtime->rank(), std::move(processes),
                                       std::make_shared<MpiBoard>(runtime));
  return std::make_shared<MpiWorld>(options, std::move(peers), std::move(runtime));
}

}  // namespace tessera::detail
