#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <ATen/core/ivalue.h>

#include "tessera/tensor/op_call.h"
#include "tessera/tensor/op_decision.h"
#include "tessera/tensor/op_plan_key.h"

namespace tessera::detail {

/// How calls that agree in op, layouts, dtypes and all other arguments that matter are done.
struct OpPlan {
  OpDecision decision;
  /// No rule fits: everything is replicated, and so is every result, whatever its shape.
  bool is_fallback = false;
  /// Every argument is used as it is, and the op itself computes its one result, which is contiguous.
  bool is_simple = false;
  /// What keeps the identities alive that the key is made of.
  std::vector<Layout> layouts;
};

/// Returns the plan of calls with that key; null when there is none yet.
[[nodiscard]] const OpPlan* find_plan(const PlanKey& key);

/// Returns the plan of a call, from this rank's bounded cache if it was made before. `arguments` are
/// the op's on the stack.
[[nodiscard]] const OpPlan& plan_of(const OpTraits& traits, std::span<const c10::IValue> arguments);

}  // namespace tessera::detail
