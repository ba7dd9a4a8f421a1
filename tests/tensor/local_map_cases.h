#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/comm/world.h"

namespace tessera::test {

// Cases of `local_map` for all ranks of a world to run together, threads or processes: each compares
// what it got with the plain call, by expectations of GoogleTest.

inline at::Tensor identity(const at::Tensor& x) { return x; }

/// Values that are the same on all ranks, of size about 1, other ones for each seed.
[[nodiscard]] at::Tensor sample_values(const std::vector<std::int64_t>& sizes,
                                       std::int64_t seed = 0);

/// Expects `InvalidArgument` on this rank, with all of `parts` in its text.
void expect_refused(const std::function<void()>& call, const std::vector<std::string>& parts);

/// What PyTorch's own tests of local_map ask for, with the number of collectives that they do.
void check_matmul_with_all_reduce(World& world);
void check_output_without_placements(World& world);
void check_plain_inputs(World& world);
void check_in_placements(World& world);
void check_redistribution_of_inputs(World& world);
void check_gradient_placements(World& world);

/// Results whose sizes depend on plain arguments, on the rank or on values.
void check_sizes_of_results(World& world);
/// Expects a `CommError` on this rank, with all of `parts` in its text.
void expect_disagreement(const std::function<void()>& call, const std::vector<std::string>& parts);
/// Ranks that take a result for different things find out, and can use the mesh no more. Needs two.
void check_disagreement_on_sizes(World& world);

/// Paddle's example of a masked mean, which needs two ranks; the others are outside of the mesh.
void check_masked_mean(World& world);

/// Programs of several mapped functions with random placements on random meshes: values, gradients
/// and second derivatives. The seeds are [first, first + count).
void check_random_programs(World& world, std::uint64_t first, std::uint64_t count);

}  // namespace tessera::test
