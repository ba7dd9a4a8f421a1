#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "tessera/comm/c10d/group_watch.h"
#include "tessera/comm/transport.h"

namespace tessera::detail {

/// What a c10d backend can do beyond the interface that all have.
struct BackendTraits {
  /// `gloo`, `mpi`, ...
  std::string engine;
  /// `Work::wait` of collectives may be called again after it timed out, so that waiting ranks can
  /// look around.
  bool polls_collectives = false;
  /// The same for messages between two.
  bool polls_messages = false;
  /// `allgather` and `reduce_scatter` take lists of tensors of different sizes.
  bool takes_uneven_lists = false;
  /// Messages are written by who sends them, waits for them can be aborted, and there is room for
  /// more tags than ours: see Note [Small messages].
  bool exchanges_small = false;
  /// Where tensors must be to be moved.
  at::Device device = at::kCPU;
};

using WorkPtr = c10::intrusive_ptr<c10d::Work>;

/// A group's backend and what watches over it; shared by the transport and its pending operations.
class Channel {
 public:
  Channel(c10::intrusive_ptr<c10d::Backend> backend, BackendTraits traits,
          std::shared_ptr<GroupWatch> watch);
  /// Closes the backend's connections. Leaves it alone when operations that failed are still under
  /// way in it: its destructor would wait for them.
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  [[nodiscard]] c10d::Backend& backend() const { return *backend_; }
  [[nodiscard]] const BackendTraits& traits() const { return traits_; }
  [[nodiscard]] GroupWatch& watch() const { return *watch_; }

  /// Begins an operation of the engine by `start_work(backend)`; throws `CommError` when that fails.
  template <typename Start>
  [[nodiscard]] WorkPtr start(const WatchedCall& call, const Start& start_work) {
    try {
      return start_work(*backend_);
    } catch (const std::exception& error) {
      watch_->fail(call, error.what());
    }
  }

  /// Waits for the engine; throws `CommError` when that fails, takes too long, or has no hope.
  void wait(const WatchedCall& call, const WorkPtr& work);
  /// The same for work that an `Alarm` watches; the call has no time left when it has waited since
  /// its begin.
  void wait_awoken(const WatchedCall& call, const WorkPtr& work);

 private:
  /// Waits once. Returns true when the work is complete, and sets `error` when it failed.
  [[nodiscard]] static bool wait_once(c10d::Work& work, std::chrono::milliseconds limit,
                                      std::string& error);
  [[noreturn]] void abandon(const WatchedCall& call, const WorkPtr& work,
                            const std::string& engine_words);

  c10::intrusive_ptr<c10d::Backend> backend_;
  BackendTraits traits_;
  std::shared_ptr<GroupWatch> watch_;
  std::vector<WorkPtr> abandoned_;
};

/// One operation, or several of the engine that make up one.
class ChannelPending : public Pending {
 public:
  /// `finish` is called once, when everything has arrived; it also keeps tensors alive.
  ChannelPending(std::shared_ptr<Channel> channel, WatchedCall call, WorkPtr work,
                 std::function<void()> finish);

  void wait() override;
  bool is_done() override;

 private:
  std::shared_ptr<Channel> channel_;
  WatchedCall call_;
  WorkPtr work_;
  std::function<void()> finish_;
};

/// An operation that was complete when it was issued.
class DonePending : public Pending {
 public:
  void wait() override {}
  bool is_done() override { return true; }
};

}  // namespace tessera::detail
