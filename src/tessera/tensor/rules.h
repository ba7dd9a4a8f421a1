#pragma once

#include "tessera/tensor/op_decision.h"

namespace tessera::detail {

struct OpTraits;

/// Returns the rule of an op: the one in the tables below, or that of its kind; null without one.
[[nodiscard]] RuleFunction find_rule(const OpTraits& traits);
[[nodiscard]] KernelFunction find_kernel(const OpTraits& traits);

// One function per family of ops, each in a file of that name: they add what the family has to the
// tables.
void add_advanced_index_rules(RuleTable& table);
void add_batched_rules(RuleTable& table);
void add_convolution_rules(RuleTable& table);
void add_factory_rules(RuleTable& table);
void add_fft_rules(RuleTable& table);
void add_foreach_rules(RuleTable& table);
void add_index_rules(RuleTable& table);
void add_join_rules(RuleTable& table);
void add_leading_rules(RuleTable& table);
void add_margin_loss_rules(RuleTable& table);
void add_matmul_rules(RuleTable& table);
void add_network_rules(RuleTable& table);
void add_pointwise_rules(RuleTable& table);
void add_reduction_rules(RuleTable& table);
void add_strided_rules(RuleTable& table);
void add_view_copy_rules(RuleTable& table);
void add_view_gradient_rules(RuleTable& table);
void add_view_rules(RuleTable& table);

void add_batch_norm_kernels(KernelTable& table);
void add_comparison_kernels(KernelTable& table);
void add_geometry_kernels(KernelTable& table);
void add_gradient_kernels(KernelTable& table);
void add_random_kernels(KernelTable& table);
void add_reduction_kernels(KernelTable& table);
/// The kernel of ops that change a tensor's shape in place, whatever their name.
void run_inplace_view(const c10::OperatorHandle& op, torch::jit::Stack* stack);
/// `normal_`; the ops called `normal` without it take tensors of means.
[[nodiscard]] KernelFunction normal_kernel();

/// The rule of ops that work element by element, whatever their name.
[[nodiscard]] std::optional<OpDecision> decide_pointwise(const OpCall& call);
/// The rule of ops that treat the first `outer` dims of all tensors as independent samples.
[[nodiscard]] std::optional<OpDecision> decide_leading(const OpCall& call, std::int64_t outer);
/// Lets ranks whose parts of all results are empty skip the op, which might refuse to compute nothing.
/// `results` are the whole ones, without data.
[[nodiscard]] std::optional<OpDecision> skipping_empty(std::optional<OpDecision> decision,
                                                       const OpCall& call,
                                                       const std::vector<at::Tensor>& results);
/// The rule of the `_foreach_` ops.
[[nodiscard]] std::optional<OpDecision> decide_lists(const OpCall& call);

}  // namespace tessera::detail
