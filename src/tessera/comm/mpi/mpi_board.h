#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "tessera/comm/c10d/status_board.h"
#include "tessera/comm/mpi/mpi_runtime.h"

namespace tessera::detail {

/// A board whose statuses are messages to all ranks. They are taken in whenever somebody looks.
class MpiBoard : public StatusBoard {
 public:
  explicit MpiBoard(std::shared_ptr<MpiRuntime> runtime);

  void post(const RankStatus& status) override;
  std::optional<RankStatus> latest(std::int64_t rank) override;
  void take_in() override;
  /// All are told anyway.
  void call_roll() override {}
  void refresh(std::chrono::milliseconds limit) override;
  std::string trouble() override { return ""; }

  /// The tag of these messages on `MpiRuntime::control`.
  static constexpr int kTag = 1;

 private:
  struct Letter {
    std::string text;
    MpiRequests sent;
  };

  /// Takes in what has arrived, and drops what has been sent; called with the lock.
  void exchange();

  std::shared_ptr<MpiRuntime> runtime_;
  std::mutex mutex_;
  std::vector<std::optional<RankStatus>> statuses_;
  /// Until they are sent; those to ranks that do not listen stay.
  std::list<Letter> letters_;
};

}  // namespace tessera::detail
