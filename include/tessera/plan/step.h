#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <span>
#include <vector>

#include "tessera/layout/layout.h"
#include "tessera/plan/cost_model.h"

namespace tessera {

/// The primitives that redistribution plans are made of.
enum class StepKind : std::uint8_t {
  /// Every rank keeps a piece of what it has. No traffic.
  slice,
  /// Every rank's contribution is what it has, with the op's identity elsewhere. No traffic.
  fill,
  /// Shards along `Step::mesh_dims` are concatenated on every rank.
  all_gather,
  /// Contributions along `Step::mesh_dims` are reduced, and every rank gets its shard of the
  /// result.
  reduce_scatter,
  /// Contributions along `Step::mesh_dims` are reduced on every rank.
  all_reduce,
  /// The sharded dimension changes along `Step::mesh_dims`.
  all_to_all,
  /// Every rank receives exactly the boxes it lacks, from whoever has them; contributions are
  /// reduced where they arrive.
  exchange,
};

/// `"slice"`, `"fill"`, `"all_gather"`, ...
[[nodiscard]] const char* to_string(StepKind kind);
std::ostream& operator<<(std::ostream& os, StepKind kind);

/// One primitive of a plan: the same description on every rank.
struct Step {
  StepKind kind;
  Layout from;
  Layout to;
  /// The mesh dims along which ranks talk, in the order that numbers the members of their groups
  /// (the last one varies fastest). Empty for `slice` and `fill`, and for an `exchange` between
  /// different meshes, where any rank of one may talk to any of the other.
  std::vector<std::int64_t> mesh_dims;
  /// The tensor dim that is concatenated or scattered; for `all_to_all` the one that becomes
  /// whole. -1 where there is none.
  std::int64_t tensor_dim = -1;
  /// Into how many pieces each message is cut, to stay within the staging budget.
  std::int64_t rounds = 1;
  /// The most that any rank moves, as estimated for choosing.
  Traffic worst;
  std::int64_t cost_ps = 0;

  /// True for `slice` and `fill`.
  [[nodiscard]] bool is_local() const { return kind == StepKind::slice || kind == StepKind::fill; }
};

/// Prints `all_gather(tp, dim 0): [S(0)] -> [R]`, with the meshes behind it where they differ.
std::ostream& operator<<(std::ostream& os, const Step& step);

/// What goes to, or comes from, one rank in one step.
struct Message {
  /// Global rank; the rank itself for what stays in place.
  std::int64_t peer = 0;
  std::int64_t numel = 0;
  /// Boxes of this rank's local tensor, in the order in which both sides pack them.
  std::size_t first_box = 0;
  std::size_t box_count = 0;
  /// Only when receiving contributions: reduce into what is there instead of writing it. Every
  /// rank reduces contributions in the same order, so that replicas agree bit by bit.
  bool accumulate = false;
};

/// One rank's own part of a step, as messages between local tensors.
///
/// Computed by each rank alone; the parts of all ranks agree: every send has its receive with the
/// same number of elements, and there is at most one message from one rank to another. A message
/// to itself appears on both sides too.
struct RankStep {
  Shape in_shape;
  Shape out_shape;
  std::vector<Message> sends;
  std::vector<Message> receives;
  /// `ndim` extents per box; see `box`.
  std::vector<Extent> extents;
  /// Set when the output must first be filled with the identity of this op.
  std::optional<ReduceOp> fill_identity;
  /// Set when messages carry contributions: the op that reduces them.
  std::optional<ReduceOp> reduce;
  /// Divide the reduced result by this (`Partial(avg)`); 1 otherwise.
  std::int64_t divisor = 1;
  std::int64_t rounds = 1;

  /// Returns box `index` of a message: one extent of the local tensor per tensor dim.
  [[nodiscard]] std::span<const Extent> box(const Message& message, std::size_t index) const;

  /// Returns the boxes of piece `round` of a message, `ndim` extents each, as one list. Pieces cut
  /// the packed elements of the message evenly, so both sides find the same ones; a piece may have
  /// no boxes.
  struct Piece {
    std::vector<Extent> extents;
    std::int64_t numel = 0;
    std::size_t box_count = 0;
  };
  [[nodiscard]] Piece piece(const Message& message, std::int64_t round) const;
};

/// Returns `rank`'s own part of `step`. For a rank outside both meshes nothing is sent or received
/// and the shapes are empty.
///
/// Works for every kind: a collective is then spelled out as the messages that have its effect.
[[nodiscard]] RankStep rank_step(const Step& step, std::int64_t rank);

/// Returns the ranks of the group in which `rank` takes part in a collective step, in the order of
/// their shards. Throws `InvalidArgument` for a step without groups and for a rank outside.
[[nodiscard]] std::vector<std::int64_t> step_group(const Step& step, std::int64_t rank);

}  // namespace tessera
