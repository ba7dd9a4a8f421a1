#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tensor/op_case.h"
#include "tensor/op_layouts.h"
#include "tessera/comm/device_mesh.h"

namespace tessera::test {

/// What a call gave: results, gradients of the leaves, and gradients of the sum of their squares.
struct Outcome {
  std::vector<at::Tensor> results;
  std::vector<at::Tensor> gradients;
  std::vector<at::Tensor> second;
  /// What it threw instead.
  std::optional<std::string> error;
};

/// One random call: everything that all ranks must agree about.
struct Case {
  std::string id;
  const OpEntry* entry = nullptr;
  std::uint64_t seed = 0;
  std::int64_t ranks = 1;
  std::size_t mesh = 0;
  OpArguments arguments;
  std::vector<ArgumentLayout> layouts;
  bool twice = false;
  bool shards_weights = false;
  Outcome expected;
};

/// Returns case `seed` of an op; `ranks` overrides the number of ranks that it draws.
[[nodiscard]] Case make_case(const std::string& family, const OpEntry& entry, std::uint64_t seed,
                             std::optional<std::int64_t> ranks = std::nullopt);

/// Sets what is expected. A call that has no second derivatives is differentiated once.
void expect(Case& tested);

/// The tensors in memory of which the arguments are made: transposed where the layout says so.
[[nodiscard]] std::vector<at::Tensor> stored(const Case& tested);

/// The leaves of a case as DTensors, and what the call on them gives.
[[nodiscard]] std::vector<at::Tensor> distributed_leaves(const Case& tested,
                                                         const DeviceMesh& mesh);
[[nodiscard]] Outcome distributed_outcome(const Case& tested, const DeviceMesh& mesh,
                                          const std::vector<at::Tensor>& leaves);

/// Runs one case on a rank; returns what is wrong with it, or nothing. What the op throws passes
/// through.
[[nodiscard]] std::string run_case(const Case& tested, const DeviceMesh& mesh);

/// How to run the case again, and what it is.
[[nodiscard]] std::string describe_case(const Case& tested);

}  // namespace tessera::test
