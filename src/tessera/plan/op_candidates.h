#pragma once

#include <cstdint>
#include <vector>

#include "tessera/plan/op_choice.h"

namespace tessera::detail {

/// How many inputs would change their placement along `mesh_dim`.
[[nodiscard]] std::int64_t changed_inputs(const Strategy& strategy,
                                          const std::vector<OpInput>& inputs, std::size_t mesh_dim);

/// How many outputs would be Partial along the mesh dim.
[[nodiscard]] std::int64_t partial_outputs(const Strategy& strategy);

/// Returns which of the strategies, of which there must be one, changes the fewest inputs along
/// `mesh_dim`; among equals the one with the fewest Partial outputs, then the first.
[[nodiscard]] std::size_t closest_strategy(const std::vector<Strategy>& strategies,
                                           const std::vector<OpInput>& inputs,
                                           std::size_t mesh_dim);

/// Returns the strategies that come into question along each mesh dim, in the order in which ties
/// prefer them; never none. Along a mesh dim of one rank, where all are alike, that is the closest
/// one.
///
/// Throws `InvalidArgument` when a fixed output asks for what the rule does not give.
[[nodiscard]] std::vector<std::vector<Strategy>> candidate_strategies(
    const OpRule& rule, const std::vector<OpInput>& inputs,
    const std::vector<std::optional<Layout>>& fixed_outputs);

/// Returns the orders in which mesh dims may cut a shared dim, as `Layout` takes them: left to
/// right, and those of the layouts that differ.
[[nodiscard]] std::vector<std::vector<std::int64_t>> candidate_orders(
    const std::vector<OpInput>& inputs, const std::vector<std::optional<Layout>>& fixed_outputs);

}  // namespace tessera::detail
