#include "tessera/tensor/op_plan.h"

#include <memory>
#include <unordered_map>
#include <utility>

#include "tessera/base/check.h"
#include "tessera/tensor/op_plan_key.h"

namespace tessera::detail {
namespace {

/// One rank's plans. Bounded: what was not used while so many others were made is forgotten. A plan
/// that is in use is not, because its op would have to make all those others first.
class PlanCache {
 public:
  const OpPlan* find(const PlanKey& key) {
    const auto found = recent_.find(key);
    if (found != recent_.end()) return found->second.get();
    const auto old = older_.find(key);
    if (old == older_.end()) return nullptr;
    return keep(key, std::move(older_.extract(old).mapped()));
  }

  const OpPlan* keep(const PlanKey& key, std::unique_ptr<const OpPlan> plan) {
    if (recent_.size() >= kMostRecent) {
      older_ = std::move(recent_);
      recent_.clear();
    }
    return recent_.emplace(key, std::move(plan)).first->second.get();
  }

 private:
  static constexpr std::size_t kMostRecent = 4096;

  using Plans = std::unordered_map<PlanKey, std::unique_ptr<const OpPlan>, PlanKeyHash>;
  Plans recent_;
  Plans older_;
};

PlanCache& cache() {
  thread_local PlanCache plans;
  return plans;
}

OpPlan fallback_plan(const OpCall& call) {
  OpPlan plan;
  plan.is_fallback = true;
  for (const auto& input : call.inputs()) {
    plan.decision.inputs.push_back(call.replicated(input.tensor));
  }
  return plan;
}

bool is_simple(const OpCall& call, const OpPlan& plan) {
  const auto& decision = plan.decision;
  bool is = !plan.is_fallback && !decision.run && decision.replaced.empty() &&
            decision.outputs.size() == 1 && !call.traits().is_view && !call.traits().has_written &&
            call.position().has_value();
  for (std::size_t i = 0; i < call.inputs().size(); ++i) {
    is = is && call.inputs()[i].meta != nullptr &&
         call.inputs()[i].meta->layout() == decision.inputs[i];
  }
  for (const auto& strides : decision.strides) is = is && strides.strides.empty();
  return is;
}

OpPlan make_plan(const OpTraits& traits, std::span<const c10::IValue> arguments) {
  const OpCall call(traits, arguments);
  OpPlan plan = fallback_plan(call);
  if (traits.rule != nullptr) {
    if (auto decision = traits.rule(call)) {
      plan.decision = *std::move(decision);
      plan.is_fallback = false;
      TESSERA_INTERNAL_CHECK(plan.decision.inputs.size() == call.inputs().size(), "the rule of ",
                             traits.name, " gave ", plan.decision.inputs.size(), " inputs");
    }
  }
  for (const auto* list : {&call.inputs(), &call.outs()}) {
    for (const auto& entry : *list) {
      if (entry.meta != nullptr) plan.layouts.push_back(entry.meta->layout());
    }
  }
  plan.is_simple = is_simple(call, plan);
  return plan;
}

}  // namespace

const OpPlan* find_plan(const PlanKey& key) { return cache().find(key); }

const OpPlan& plan_of(const OpTraits& traits, std::span<const c10::IValue> arguments) {
  PlanKey key;
  KeyWriter(key).write(traits, arguments);
  if (const auto* plan = cache().find(key)) return *plan;
  return *cache().keep(key, std::make_unique<const OpPlan>(make_plan(traits, arguments)));
}

}  // namespace tessera::detail
