#include "tessera/tensor/local_map_gradient.h"

#include <string>
#include <utility>

#include <torch/csrc/autograd/custom_function.h>

#include "tessera/base/check.h"
#include "tessera/tensor/part_gradient.h"

namespace tessera::detail {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// The identity, with a gradient that is multiplied by `factor`, or refused where there is a `refusal`.
struct ScaledGradient : torch::autograd::Function<ScaledGradient> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, double factor,
                            const std::string& refusal) {
    context->saved_data["factor"] = factor;
    context->saved_data["refusal"] = refusal;
    return x;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const std::string refusal = context->saved_data["refusal"].toStringRef();
    TESSERA_CHECK(refusal.empty(), refusal);
    const at::Tensor& gradient = gradients[0];
    return {gradient.defined() ? gradient.mul(context->saved_data["factor"].toDouble()) : gradient,
            at::Tensor(), at::Tensor()};
  }
};

/// The op by which more than one rank contributes along a mesh dim.
std::optional<ReduceOp> reduction_along(const Layout& layout, std::size_t mesh_dim) {
  const auto* partial = std::get_if<Partial>(&layout.placements()[mesh_dim]);
  if (partial == nullptr || layout.mesh().sizes()[mesh_dim] == 1) return std::nullopt;
  return partial->op;
}

bool adds_up_to_whole(ReduceOp op) {
  return op == ReduceOp::avg || op == ReduceOp::min || op == ReduceOp::max;
}

Placement input_gradient_along(const Layout& layout, std::size_t mesh_dim) {
  const Placement& placement = layout.placements()[mesh_dim];
  if (is_sharded(placement) || layout.mesh().sizes()[mesh_dim] == 1) {
    return is_partial(placement) ? Placement(Replicate()) : placement;
  }
  const auto op = reduction_along(layout, mesh_dim);
  return !op || adds_up_to_whole(*op) ? Placement(Partial()) : Placement(Replicate());
}

Placement output_gradient_along(const Layout& layout, std::size_t mesh_dim,
                                MeshDims redundant_dims) {
  const Placement& placement = layout.placements()[mesh_dim];
  if (is_partial(placement)) return Replicate();
  const bool is_redundant =
      (redundant_dims & mesh_dim_bit(static_cast<std::int64_t>(mesh_dim))) != 0;
  const bool is_summed =
      is_replicate(placement) && layout.mesh().sizes()[mesh_dim] > 1 && !is_redundant;
  return is_summed ? Placement(Partial()) : placement;
}

/// Returns the layout with the placements `along(mesh dim)`: mostly the same one, which costs nothing.
template <typename Along>
Layout with_placements(const Layout& layout, const Along& along) {
  const Placements& before = layout.placements();
  std::size_t same = 0;
  while (same < before.size() && along(same) == before[same]) ++same;
  if (same == before.size()) return layout;
  Placements placements = before;
  for (std::size_t i = same; i < placements.size(); ++i) placements[i] = along(i);
  return Layout(layout.mesh(), std::move(placements), layout.shape());
}

}  // namespace

Layout input_gradient(const Layout& layout) {
  return with_placements(layout,
                         [&](std::size_t dim) { return input_gradient_along(layout, dim); });
}

void check_input_gradient(std::size_t index, const Layout& input, const Layout& gradient) {
  if (const auto why = why_not_gradient_of_part(input, gradient)) {
    throw InvalidArgument(
        concat("local_map: in_grad_placements: the gradient of input ", index, ", ", *why));
  }
}

Layout output_gradient(const Layout& layout, MeshDims redundant_dims) {
  return with_placements(
      layout, [&](std::size_t dim) { return output_gradient_along(layout, dim, redundant_dims); });
}

MeshDims replicated_dims(const Layout& layout) {
  MeshDims dims = 0;
  for (std::size_t i = 0; i < layout.placements().size(); ++i) {
    if (is_replicate(layout.placements()[i])) dims |= mesh_dim_bit(static_cast<std::int64_t>(i));
  }
  return dims;
}

at::Tensor with_gradient_of_input(const at::Tensor& local, const Layout& layout) {
  const auto op = layout.reduce_op();
  if (!op || *op == ReduceOp::sum || adds_up_to_whole(*op)) return local;
  return ScaledGradient::apply(
      local, 1.0,
      concat("local_map: the gradient of an input that is ", Placement(Partial(*op)),
             " is not defined by those of its contributions; redistribute it before"));
}

at::Tensor with_gradient_of_output(const at::Tensor& local, const Layout& layout) {
  if (!layout.has_partial()) return local;
  double factor = 1;
  for (std::size_t i = 0; i < layout.placements().size(); ++i) {
    const auto op = reduction_along(layout, i);
    if (!op || *op == ReduceOp::sum) continue;
    if (*op != ReduceOp::avg) {
      return ScaledGradient::apply(
          local, 1.0,
          concat("local_map: the gradient of an output that is ", Placement(Partial(*op)),
                 " cannot be handed out to its contributions; all_reduce it in the function"));
    }
    factor /= static_cast<double>(layout.mesh().sizes()[i]);
  }
  return factor == 1 ? local : ScaledGradient::apply(local, factor, std::string());
}

}  // namespace tessera::detail
