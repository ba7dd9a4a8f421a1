#pragma once

#include <cstdint>

namespace tessera {

/// Sets the seed of all random numbers in DTensors on the calling rank, and starts their sequence
/// anew. All ranks must use the same seed.
///
/// Every element of a random DTensor is a function of the seed, of how many random operations came
/// before, and of the element's global index. So `rand`, `randn`, dropout, `uniform_`, `normal_`,
/// `bernoulli_` and everything built on them (`torch::nn::init`) give bit by bit the same global
/// tensor on every mesh, for every placement and any number of ranks. The values are not those of
/// plain tensors, and libtorch's generators are neither used nor changed; passing one to an
/// operation on a DTensor throws `InvalidArgument`.
void manual_seed(std::uint64_t seed);

}  // namespace tessera
