#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "support/random_layout.h"

namespace tessera::test {

/// What one random call of an op gets, as plain tensors or as DTensors.
struct OpArguments {
  std::vector<at::Tensor> tensors;
  /// Everything else: dims, sizes, flags.
  std::vector<std::int64_t> numbers = {};

  const at::Tensor& operator[](std::size_t index) const { return tensors.at(index); }
  [[nodiscard]] std::int64_t number(std::size_t index) const { return numbers.at(index); }
  [[nodiscard]] bool flag(std::size_t index) const { return numbers.at(index) != 0; }
  /// The numbers from `first` on.
  [[nodiscard]] std::vector<std::int64_t> rest(std::size_t first = 0) const {
    return {numbers.begin() + static_cast<std::ptrdiff_t>(first), numbers.end()};
  }
};

using OpResults = std::vector<at::Tensor>;

/// What is not checked of an op, or checked otherwise.
enum class OpCheck : std::uint8_t {
  /// Values and gradients.
  all,
  /// The op has no gradients, or none that are the same for equal values (ties).
  values,
  /// Shapes and dtypes: the values are not defined.
  shapes,
  /// Random: values and gradients against the same call on one rank.
  random,
  /// As `all`, with the tolerance of bfloat16.
  rough,
};

/// One line of a table: an op, how its arguments are made, and the call.
struct OpEntry {
  const char* name;
  OpArguments (*make)(Random& random);
  OpResults (*call)(const OpArguments& arguments);
  OpCheck check = OpCheck::all;
};

/// Runs random cases of every op of a family, on 1 to 4 ranks with random meshes and placements, and
/// compares values, shapes, dtypes and gradients with those of plain tensors. Prints the seeds; a
/// failure names the case, and the environment variable `TESSERA_OP_CASE=family/op:seed` runs that
/// one alone. `TESSERA_OP_SEEDS=first:count` runs other seeds.
void check_family(const std::string& family, const std::vector<OpEntry>& entries,
                  std::int64_t cases_per_op);

/// The same inside of a rank that runs already, for processes as ranks: `count` cases of random ops.
/// Throws for the first that fails.
void check_sample(const std::string& family, const std::vector<OpEntry>& entries,
                  std::int64_t count);

}  // namespace tessera::test
