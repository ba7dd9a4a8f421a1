#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tessera::detail {

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
  /// How many calls it has begun: on each group when it has left, on its group when it waits.
  std::string calls;
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
  /// again some milliseconds later.
  [[nodiscard]] virtual std::optional<RankStatus> latest(std::int64_t rank) = 0;
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
  void refresh(std::chrono::milliseconds /*limit*/) override {}
  std::string trouble() override { return ""; }
};

}  // namespace tessera::detail
