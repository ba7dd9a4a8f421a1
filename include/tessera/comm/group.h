#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tessera {

namespace detail {
struct GroupState;
}
class World;

/// Some ranks of the world that communicate, as one of them sees it. A handle: cheap to copy.
///
/// Groups come from a `World` or a `DeviceMesh`, and are created on first use by all their members.
class Group {
 public:
  /// The members' global ranks, in the group's order.
  [[nodiscard]] const std::vector<std::int64_t>& ranks() const;
  [[nodiscard]] std::int64_t size() const;
  /// This rank's place in `ranks`.
  [[nodiscard]] std::int64_t index() const;
  /// `world` for all ranks, otherwise the name that it was first asked for by (that of the mesh
  /// dims, `tp` or `dp,tp`, where they have names), or else the ranks as `{0,2}`. Used in messages
  /// and `CommRecord`.
  [[nodiscard]] const std::string& name() const;
  /// The world that it belongs to. Throws `InvalidArgument` when that has ended.
  [[nodiscard]] World world() const;
  /// `threads`, `gloo`, `mpi`, or the name of an adopted backend. Communicates nothing. Throws
  /// `InvalidArgument` when the world has ended.
  [[nodiscard]] const char* engine() const;

  /// Equal when both are the same group of the same world.
  bool operator==(const Group& other) const { return state_ == other.state_; }

  /// Made by `World` and `DeviceMesh`.
  explicit Group(std::shared_ptr<detail::GroupState> state) : state_(std::move(state)) {}
  /// What it refers to; for Tessera itself.
  [[nodiscard]] detail::GroupState& state() const { return *state_; }

 private:
  std::shared_ptr<detail::GroupState> state_;
};

}  // namespace tessera
