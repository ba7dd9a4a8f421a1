#include "tessera/tensor/rules.h"

#include "tessera/tensor/op_traits.h"

namespace tessera::detail {
namespace {

template <typename Function>
Function find_in(const std::unordered_map<std::string_view, Function>& table,
                 const std::string& name) {
  const auto found = table.find(name);
  return found == table.end() ? nullptr : found->second;
}

RuleTable make_rules() {
  RuleTable table;
  add_advanced_index_rules(table);
  add_batched_rules(table);
  add_convolution_rules(table);
  add_factory_rules(table);
  add_fft_rules(table);
  add_foreach_rules(table);
  add_index_rules(table);
  add_join_rules(table);
  add_leading_rules(table);
  add_margin_loss_rules(table);
  add_matmul_rules(table);
  add_network_rules(table);
  add_pointwise_rules(table);
  add_reduction_rules(table);
  add_strided_rules(table);
  add_view_copy_rules(table);
  add_view_gradient_rules(table);
  add_view_rules(table);
  return table;
}

KernelTable make_kernels() {
  KernelTable table;
  add_batch_norm_kernels(table);
  add_comparison_kernels(table);
  add_geometry_kernels(table);
  add_gradient_kernels(table);
  add_random_kernels(table);
  add_reduction_kernels(table);
  return table;
}

}  // namespace

RuleFunction find_rule(const OpTraits& traits) {
  static const RuleTable table = make_rules();
  if (!traits.name.starts_with("aten::")) return nullptr;
  if (const auto rule = find_in(table, traits.base_name)) return rule;
  if (traits.base_name.starts_with("_foreach_")) return &decide_lists;
  return traits.is_pointwise && !traits.is_random ? &decide_pointwise : nullptr;
}

KernelFunction find_kernel(const OpTraits& traits) {
  static const KernelTable table = make_kernels();
  // Variants that write elsewhere are left to the fallback.
  if (!traits.name.starts_with("aten::") || traits.has_out) return nullptr;
  if (traits.name == "aten::normal_") return normal_kernel();
  if (const auto kernel = find_in(table, traits.base_name)) return kernel;
  return traits.is_inplace_view ? &run_inplace_view : nullptr;
}

}  // namespace tessera::detail
