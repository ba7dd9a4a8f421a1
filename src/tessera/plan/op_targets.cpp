#include "tessera/plan/op_targets.h"

#include <algorithm>

#include "tessera/plan/redistribute_plan.h"

namespace tessera::detail {

TargetTable TargetTable::of_input(const Candidates& candidates, const OpInput& input,
                                  std::size_t index) {
  return TargetTable(candidates, &input, input.layout.shape(), index);
}

TargetTable TargetTable::of_output(const Candidates& candidates, Shape shape, std::size_t index) {
  return TargetTable(candidates, nullptr, std::move(shape), index);
}

TargetTable::TargetTable(const Candidates& candidates, const OpInput* input, Shape shape,
                         std::size_t index)
    : candidates_(&candidates), input_(input), shape_(std::move(shape)), index_(index) {
  for (const auto& strategies : candidates.strategies) {
    auto& alike = first_alike_.emplace_back();
    for (const auto& strategy : strategies) {
      const auto first = std::find_if(
          strategies.begin(), strategies.end(),
          [&](const Strategy& other) { return placement(other) == placement(strategy); });
      alike.push_back(static_cast<std::size_t>(first - strategies.begin()));
    }
  }
}

const Placement& TargetTable::placement(const Strategy& strategy) const {
  return input_ != nullptr ? strategy.inputs[index_] : strategy.outputs[index_];
}

const TargetTable::Target& TargetTable::at(const Assignment& assignment) {
  std::vector<std::size_t> key{assignment.order};
  for (std::size_t i = 0; i < first_alike_.size(); ++i) {
    key.push_back(first_alike_[i][assignment.picks[i]]);
  }
  const auto found = known_.find(key);
  if (found != known_.end()) return found->second;
  return known_.emplace(std::move(key), make(assignment)).first->second;
}

TargetTable::Target TargetTable::make(const Assignment& assignment) const {
  Placements placements;
  for (std::size_t i = 0; i < first_alike_.size(); ++i) {
    placements.push_back(placement(candidates_->strategy(assignment, i)));
  }
  const Layout layout(candidates_->mesh, std::move(placements), shape_,
                      candidates_->orders[assignment.order]);
  if (input_ == nullptr) return {layout, 0, false};
  if (input_->layout.equivalent(layout)) return {input_->layout, 0, false};
  return {layout, redistribution_bytes(input_->layout, layout, input_->element_size), true};
}

}  // namespace tessera::detail
