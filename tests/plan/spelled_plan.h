#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/base/concat.h"
#include "tessera/plan/redistribute_plan.h"

/// Plans from what a test can spell out, and plans spelled out for it.
namespace tessera::test {

/// Returns a layout: `spelled("dp=2,tp=4", "S0,R", {8, 8})`.
inline Layout spelled(std::string_view mesh, std::string_view placements, Shape shape) {
  return Layout(MeshShape::parse(mesh), parse_placements(placements), std::move(shape));
}

/// Returns the plan between two placements on one mesh.
inline RedistributePlan planned(std::string_view mesh, std::string_view from, std::string_view to,
                                const Shape& shape, const PlanOptions& options = {}) {
  return plan_redistribute(spelled(mesh, from, shape), spelled(mesh, to, shape), options);
}

/// Returns what the steps print, one by one.
inline std::vector<std::string> printed(const std::vector<Step>& steps) {
  std::vector<std::string> lines;
  for (const auto& step : steps) lines.push_back(concat(step));
  return lines;
}

/// Returns a step as a plan would have it, without costs.
inline Step step_of(StepKind kind, const Layout& from, const Layout& to,
                    std::vector<std::int64_t> mesh_dims = {}, std::int64_t tensor_dim = -1) {
  return Step{kind, from, to, std::move(mesh_dims), tensor_dim, 1, {}, 0};
}

/// Returns the step that goes straight from one layout to another, whatever a plan would choose.
inline Step exchange_step(const Layout& from, const Layout& to) {
  return step_of(StepKind::exchange, from, to);
}

}  // namespace tessera::test
