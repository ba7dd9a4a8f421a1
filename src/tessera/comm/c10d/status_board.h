#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::detail {

/// A call that others must make before a rank can go on.
struct AwaitedCall {
  /// The others; the rank itself may be among them.
  std::vector<std::int64_t> ranks;
  /// What such calls are counted by (see `Peers`), and which of them it is; 0 when that is not known.
  std::string key;
  std::int64_t number = 0;
};

/// What a rank says about itself when something takes long or goes wrong.
struct RankStatus {
  enum class Kind : std::uint8_t {
    /// It has been waiting in a call for a long time.
    waiting,
    /// Its call failed, and its group with it.
    failed,
    /// Its function has returned, or thrown: it will not come any more.
    left,
  };

  Kind kind = Kind::waiting;
  /// The group that it waits or failed in.
  std::string group;
  /// `all_reduce(f32[4] sum)`; empty when it waits no longer.
  std::string call;
  /// Why it failed, or left; empty when its function has returned.
  std::string reason;
  /// The keys (see `Peers`) of all groups that have failed on this rank so far.
  std::string failed_groups;
  /// How many calls it has begun, by their keys: `{0,1}=7;{0,2}=1;`.
  std::string calls;
  /// The number of this wait among all that the rank has posted, and what it waits for.
  std::int64_t wait = 0;
  AwaitedCall awaited;
  /// The last deadlock that this rank found, see `Deadlock`; empty when there was none.
  std::string deadlock;
};

/// As text, and back. Throws `InternalError` for other texts.
[[nodiscard]] std::string encode(const RankStatus& status);
[[nodiscard]] RankStatus decode_status(std::string_view text);

/// Where ranks tell each other what became of them, beside the engine that failed: nothing here
/// ever blocks for long or throws.
class StatusBoard {
 public:
  virtual ~StatusBoard() = default;

  /// Tells everybody; replaces what this rank said before.
  virtual void post(const RankStatus& status) = 0;
  /// What that rank said last, as far as it is known here. Looking makes the board look too, so ask
  /// again some milliseconds later. That a rank waits need not be known here before `call_roll`.
  [[nodiscard]] virtual std::optional<RankStatus> latest(std::int64_t rank) = 0;
  /// Takes in what has arrived, where news arrive by themselves, so that they do not pile up.
  virtual void take_in() {}
  /// Makes the board find out which ranks wait, which may take one question for each of them.
  virtual void call_roll() = 0;
  /// Waits until what was posted is on its way and what the others had posted by now is known, at
  /// most so long.
  virtual void refresh(std::chrono::milliseconds limit) = 0;
  /// Why others cannot be heard any more, in words; empty while they can.
  [[nodiscard]] virtual std::string trouble() = 0;
};

/// For ranks that have no way to tell each other anything.
class NoBoard : public StatusBoard {
 public:
  void post(const RankStatus& /*status*/) override {}
  std::optional<RankStatus> latest(std::int64_t /*rank*/) override { return std::nullopt; }
  void call_roll() override {}
  void refresh(std::chrono::milliseconds /*limit*/) override {}
  std::string trouble() override { return ""; }
};

}  // namespace tessera::detail
