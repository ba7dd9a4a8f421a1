#include "tessera/nn/optimizer_fields.h"

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include "tessera/base/check.h"

namespace tessera::nn::detail {
namespace {

using namespace torch::optim;

template <typename State>
void visit_adam(State& state, const FieldVisitor& visitor) {
  visitor.number("step", state.step());
  visitor.tensor("exp_avg", state.exp_avg());
  visitor.tensor("exp_avg_sq", state.exp_avg_sq());
  visitor.tensor("max_exp_avg_sq", state.max_exp_avg_sq());
}

void visit(AdamParamState& state, const FieldVisitor& visitor) { visit_adam(state, visitor); }

void visit(AdamWParamState& state, const FieldVisitor& visitor) { visit_adam(state, visitor); }

void visit(SGDParamState& state, const FieldVisitor& visitor) {
  visitor.tensor("momentum_buffer", state.momentum_buffer());
}

void visit(RMSpropParamState& state, const FieldVisitor& visitor) {
  visitor.number("step", state.step());
  visitor.tensor("square_avg", state.square_avg());
  visitor.tensor("momentum_buffer", state.momentum_buffer());
  visitor.tensor("grad_avg", state.grad_avg());
}

void visit(AdagradParamState& state, const FieldVisitor& visitor) {
  visitor.number("step", state.step());
  visitor.tensor("sum", state.sum());
}

template <typename State>
bool visit_as(OptimizerParamState& state, const FieldVisitor& visitor) {
  auto* typed = dynamic_cast<State*>(&state);
  if (typed != nullptr) visit(*typed, visitor);
  return typed != nullptr;
}

constexpr const char* kKnown = "allowed are those of Adam, AdamW, SGD, RMSprop and Adagrad";

}  // namespace

void visit_fields(OptimizerParamState& state, const FieldVisitor& visitor) {
  const bool is_known =
      visit_as<AdamParamState>(state, visitor) || visit_as<AdamWParamState>(state, visitor) ||
      visit_as<SGDParamState>(state, visitor) || visit_as<RMSpropParamState>(state, visitor) ||
      visit_as<AdagradParamState>(state, visitor);
  TESSERA_CHECK(is_known, "optimizer state: the fields of this optimizer are not known; ", kKnown);
}

std::unique_ptr<OptimizerParamState> make_param_state(const Optimizer& optimizer) {
  if (dynamic_cast<const Adam*>(&optimizer)) return std::make_unique<AdamParamState>();
  if (dynamic_cast<const AdamW*>(&optimizer)) return std::make_unique<AdamWParamState>();
  if (dynamic_cast<const SGD*>(&optimizer)) return std::make_unique<SGDParamState>();
  if (dynamic_cast<const RMSprop*>(&optimizer)) return std::make_unique<RMSpropParamState>();
  if (dynamic_cast<const Adagrad*>(&optimizer)) return std::make_unique<AdagradParamState>();
  TESSERA_CHECK(false, "optimizer state: this optimizer is not known; ", kKnown);
}

}  // namespace tessera::nn::detail
