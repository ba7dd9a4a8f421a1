#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tessera/layout/layout.h"
#include "tessera/plan/op_rule.h"

namespace tessera {

/// An input of an op as it is now.
struct OpInput {
  Layout layout;
  /// Bytes per element; 4 is float32.
  std::int64_t element_size = 4;
};

/// What a choice depends on besides the rule and the inputs.
struct ChooseOptions {
  /// Layouts that outputs must get, one entry per output, or none at all: an op in place keeps the
  /// layout of what it writes, and the inputs move to fit.
  std::vector<std::optional<Layout>> fixed_outputs = {};
  /// The sizes of factors that no input has.
  std::vector<FactorSize> sizes = {};
  /// While the mesh dims' strategies combine in at most so many ways, all of them are compared;
  /// beyond that one mesh dim is improved after the other, from two starting points.
  std::int64_t max_combinations = 4096;
};

/// Where the tensors of one call of an op go.
struct OpChoice {
  /// What each mesh dim does, in the mesh's order.
  std::vector<Strategy> strategies;
  /// The layout that each input must be brought into; the present one, unchanged, where it serves.
  std::vector<Layout> inputs;
  /// The layout that each output then has.
  std::vector<Layout> outputs;
  /// What bringing the inputs there moves: the sum over the inputs of `redistribution_bytes`.
  std::int64_t bytes = 0;
  /// What a reduction of the outputs will move that counted against this choice; see
  /// `choose_layouts`.
  std::int64_t charged_bytes = 0;
  /// Set where a `mean` factor is cut over more than one rank: the number of elements behind each
  /// mean, by which every rank must divide its local *sum*. A local mean would be wrong on uneven
  /// shards, and on an empty one not a number.
  std::optional<std::int64_t> mean_count;
  /// Whether this is certainly the best: all combinations were compared, or nothing moves.
  bool exhaustive = true;
};

/// Returns the layouts in which an op runs on local parts, such that the least is moved.
///
///     mm of [8,8][S(0)] and [8,8][R]        stays, gives [8,8][S(0)]
///     mm of [8,8][S(1)] and [8,8][S(0)]     stays, gives [8,8][P(sum)]
///     add of [8,8][S(0)] and [8,1][S(0)]    stays; with [1,8][S(1)] the small one is gathered
///
/// Every mesh dim takes one strategy of the rule. Partial passes through only where an input, or a
/// fixed output, is Partial by that op already; a strided shard of an input is a candidate for its
/// factor too, and so is the order in which an input's mesh dims cut a shared dim. The
/// combination with the lowest cost wins: `bytes`, and for outputs that would become Partial
/// `charged_bytes`, what a reduce_scatter of them would receive. That is charged only for mesh dims
/// along which some input can be used neither as it is nor as a piece of its replica: a Partial
/// that the present layouts lead to by themselves is what the caller asked for. So inputs that fit
/// together stay, and no shard is moved, or filled up to a Partial, only to put off a larger
/// reduction. Fixed outputs are not charged.
///
/// Among equal costs the choice that leaves more inputs as they are wins, then more placements,
/// then fewer Partial outputs, then earlier strategies (see `OpRule::strategies`), the first mesh
/// dim first.
///
/// Pure: depends on the arguments alone, so all ranks choose alike. An input whose layout is
/// Partial by an op that cannot pass is brought to Replicate or a shard. Mesh dims of one rank cost
/// nothing. Outputs count with the largest element size of the inputs.
///
/// Throws `InvalidArgument` when the inputs' number is not the rule's, their meshes are not the
/// same, an element size or `max_combinations` is below 1, the fixed outputs' number, mesh or shape
/// is wrong, the rule has no strategy that gives them, and as `OpRule::bind` does.
[[nodiscard]] OpChoice choose_layouts(const OpRule& rule, const std::vector<OpInput>& inputs,
                                      const ChooseOptions& options = {});

}  // namespace tessera
