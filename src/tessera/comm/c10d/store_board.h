#pragma once

#include <memory>

#include "tessera/comm/c10d/key_store.h"
#include "tessera/comm/c10d/status_board.h"

namespace tessera::detail {

/// A board whose statuses are keys of a store.
///
/// A thread of its own talks to the store, and only while somebody asks or posts: a store that does
/// not answer, because the rank that serves it is stopped, must not stop this one too.
class StoreBoard : public StatusBoard {
 public:
  /// `server` names who serves the store, for messages.
  StoreBoard(std::unique_ptr<KeyStore> store, std::int64_t rank, std::int64_t size,
             std::string server);
  ~StoreBoard() override;
  StoreBoard(const StoreBoard&) = delete;
  StoreBoard& operator=(const StoreBoard&) = delete;

  void post(const RankStatus& status) override;
  std::optional<RankStatus> latest(std::int64_t rank) override;
  void call_roll() override;
  void refresh(std::chrono::milliseconds limit) override;
  std::string trouble() override;

 private:
  struct State;
  static void serve(const std::shared_ptr<State>& state);

  std::shared_ptr<State> state_;
};

}  // namespace tessera::detail
