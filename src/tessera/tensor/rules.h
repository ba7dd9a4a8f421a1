#pragma once

#include "tessera/tensor/op_decision.h"

namespace tessera::detail {

struct OpTraits;

/// Returns the rule of an op: the one in the tables below, or that of its kind; null without one.
[[nodiscard]] RuleFunction find_rule(const OpTraits& traits);
[[nodiscard]] KernelFunction find_kernel(const OpTraits& traits);

// One function per family of ops, each in a file of that name: they add what the family has to the
// tables.
void add_factory_rules(RuleTable& table);
void add_foreach_rules(RuleTable& table);
void add_index_rules(RuleTable& table);
void add_join_rules(RuleTable& table);
void add_matmul_rules(RuleTable& table);
void add_network_rules(RuleTable& table);
void add_pointwise_rules(RuleTable& table);
void add_reduction_rules(RuleTable& table);
void add_strided_rules(RuleTable& table);
void add_view_rules(RuleTable& table);

void add_geometry_kernels(KernelTable& table);
void add_random_kernels(KernelTable& table);
void add_reduction_kernels(KernelTable& table);
/// The kernel of ops that change a tensor's shape in place, whatever their name.
void run_inplace_view(const c10::OperatorHandle& op, torch::jit::Stack* stack);
/// `normal_`; the ops called `normal` without it take tensors of means.
[[nodiscard]] KernelFunction normal_kernel();

/// The rule of ops that work element by element, whatever their name.
[[nodiscard]] std::optional<OpDecision> decide_pointwise(const OpCall& call);
/// The rule of the `_foreach_` ops.
[[nodiscard]] std::optional<OpDecision> decide_lists(const OpCall& call);

}  // namespace tessera::detail
