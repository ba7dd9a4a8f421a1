#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "tessera/plan/op_candidates.h"

namespace tessera::detail {

/// Which candidate each mesh dim takes, and in which order they cut a shared dim.
struct Assignment {
  std::vector<std::size_t> picks;
  std::size_t order = 0;
};

/// Everything that assignments pick from.
struct Candidates {
  MeshShape mesh;
  /// Per mesh dim; see `candidate_strategies` and `candidate_orders`.
  std::vector<std::vector<Strategy>> strategies;
  std::vector<std::vector<std::int64_t>> orders;

  [[nodiscard]] const Strategy& strategy(const Assignment& assignment, std::size_t mesh_dim) const {
    return strategies[mesh_dim][assignment.picks[mesh_dim]];
  }
};

/// The layouts of one tensor of an op under all assignments, each worked out once: assignments that
/// differ for other tensors only share one.
class TargetTable {
 public:
  /// A layout, and what it takes to get the input there; nothing for an output.
  struct Target {
    Layout layout;
    std::int64_t bytes = 0;
    bool moved = false;
  };

  /// The table of an input. The arguments must outlive it.
  static TargetTable of_input(const Candidates& candidates, const OpInput& input,
                              std::size_t index);
  static TargetTable of_output(const Candidates& candidates, Shape shape, std::size_t index);

  const Target& at(const Assignment& assignment);

 private:
  TargetTable(const Candidates& candidates, const OpInput* input, Shape shape, std::size_t index);
  [[nodiscard]] const Placement& placement(const Strategy& strategy) const;
  [[nodiscard]] Target make(const Assignment& assignment) const;

  const Candidates* candidates_;
  const OpInput* input_;  // Null for an output.
  Shape shape_;
  std::size_t index_;
  /// Per mesh dim and candidate, the first candidate that places this tensor alike.
  std::vector<std::vector<std::size_t>> first_alike_;
  std::map<std::vector<std::size_t>, Target> known_;
};

}  // namespace tessera::detail
