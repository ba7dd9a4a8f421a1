#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "support/local_array.h"
#include "support/random_layout.h"
#include "tessera/plan/redistribute_plan.h"

namespace tessera::test {

/// The local tensors of all ranks of a mesh, by global rank.
using Locals = std::map<std::int64_t, LocalArray>;

/// A tensor spread over a mesh, and what it stands for.
struct DistributedTensor {
  Locals locals;
  /// The value of every element, all contributions reduced.
  std::vector<std::int64_t> value;
};

/// Returns a random tensor in a layout: shards cut from one array, replicas equal, contributions
/// of a Partial random and different.
[[nodiscard]] DistributedTensor random_tensor(Random& random, const Layout& layout);

/// Executes steps for all ranks in one thread: collectives by what they are defined to do on whole
/// groups, everything else message by message and round by round.
///
/// Throws `InternalError` where ranks disagree: a send without its receive, or of another size.
[[nodiscard]] Locals simulate(const std::vector<Step>& steps, Locals locals);

/// Returns what is wrong with the local tensors of `layout` as a holder of `value`; empty when
/// nothing is.
[[nodiscard]] std::string find_fault(const Layout& layout, const Locals& locals,
                                     const std::vector<std::int64_t>& value);

}  // namespace tessera::test
