#pragma once

#include <cstdint>
#include <vector>

#include "tessera/plan/cost_model.h"
#include "tessera/plan/roles.h"

namespace tessera::detail {

/// Ranks on which costs are evaluated, ascending: all of them while they are few, otherwise the
/// first, the last and a fixed spread. The same everywhere, so that every rank computes the same
/// costs.
[[nodiscard]] std::vector<std::int64_t> sample_ranks(const Layout& from, const Layout& to);

/// True when `sample_ranks` are all ranks of both meshes.
[[nodiscard]] bool sample_is_complete(const Layout& from, const Layout& to);

/// The most that any sampled rank moves in a direct exchange. Received bytes are exact for the
/// sampled ranks; the rest is close, and found without enumerating peers.
[[nodiscard]] Traffic estimate_exchange(const Roles& roles, std::int64_t element_size);

/// Upper bound on the elements that any rank holds. With strided shards that may be more than the
/// first rank has: of 4 and 3 elements in 3 pieces, the first of two chunks gets 2 and 3.
[[nodiscard]] std::int64_t most_held(const Layout& layout);

/// Upper bound on the elements that any rank sends and receives in a direct exchange, together;
/// holds for every rank, sampled or not.
[[nodiscard]] std::int64_t most_exchanged(const Roles& roles);

/// How many elements of the destination `rank` needs and does not hold; with contributions to be
/// reduced, all that it needs.
[[nodiscard]] std::int64_t missing_elements(const Roles& roles, std::int64_t rank);

/// No plan can receive fewer bytes on average over the ranks of both meshes (over the sampled
/// ones where they are many).
[[nodiscard]] std::int64_t mean_bound_bytes(const Roles& roles, std::int64_t element_size);

}  // namespace tessera::detail
