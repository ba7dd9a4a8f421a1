#include "tessera/tensor/class_terms.h"

#include <limits>
#include <vector>

#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "tessera/base/check.h"
#include "tessera/comm/collectives.h"
#include "tessera/comm/recorder.h"
#include "tessera/tensor/conversion.h"
#include "tessera/tensor/dtensor_meta.h"
#include "tessera/tensor/factories.h"

namespace tessera::detail {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// How the logits of one call are cut, as one rank sees it.
struct ClassCut {
  DeviceMesh mesh;
  /// The mesh dims that cut the classes.
  std::vector<std::int64_t> mesh_dims;
  /// The classes of this rank.
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t class_dim = 0;
  /// Of what there is per sample.
  Layout samples;
};

/// The layout of a tensor without the class dim.
Layout sample_layout(const Layout& layout, std::int64_t class_dim) {
  Placements placements = layout.placements();
  for (auto& placement : placements) {
    if (auto* shard = std::get_if<Shard>(&placement)) {
      if (shard->dim == class_dim) {
        placement = Replicate();
      } else if (shard->dim > class_dim) {
        --shard->dim;
      }
    } else if (auto* strided = std::get_if<StridedShard>(&placement)) {
      if (strided->dim > class_dim) --strided->dim;
    }
  }
  Shape shape = layout.shape();
  shape.erase(shape.begin() + class_dim);
  return Layout(layout.mesh(), std::move(placements), std::move(shape));
}

ClassCut cut_of(const DTensorMeta& meta, std::int64_t class_dim) {
  const Layout& layout = meta.layout();
  ClassCut cut{.mesh = meta.mesh(),
               .mesh_dims = {},
               .class_dim = class_dim,
               .samples = sample_layout(layout, class_dim)};
  for (std::size_t dim = 0; dim < layout.placements().size(); ++dim) {
    if (layout.placements()[dim] == Placement(Shard(class_dim))) {
      cut.mesh_dims.push_back(static_cast<std::int64_t>(dim));
    }
  }
  if (const auto position = meta.mesh().shape().position_of(meta.mesh().world().rank())) {
    const IndexSet classes = layout.owned(class_dim, *position);
    if (!classes.runs().empty()) cut.begin = classes.runs().front().begin;
    cut.end = cut.begin + classes.size();
  }
  return cut;
}

at::Tensor reduced(const at::Tensor& tensor, ReduceOp op, const ClassCut& cut) {
  if (cut.mesh_dims.empty()) return tensor;
  return all_reduce(tensor, op, cut.mesh.group(cut.mesh_dims));
}

/// Where the targets are among this rank's classes, and which are not.
struct OwnTargets {
  at::Tensor index;
  at::Tensor elsewhere;
};

OwnTargets own_targets(const at::Tensor& target, const ClassCut& cut) {
  const at::Tensor elsewhere = target.lt(cut.begin).logical_or_(target.ge(cut.end));
  return {target.sub(cut.begin).masked_fill_(elsewhere, 0).unsqueeze(cut.class_dim), elsewhere};
}

struct LocalTerms {
  at::Tensor log_sum_exp;
  at::Tensor loss;
};

LocalTerms local_terms(const at::Tensor& logits, const at::Tensor& target, const ClassCut& cut) {
  const at::Tensor values = logits.to(at::toOpMathType(logits.scalar_type()));
  const bool has_classes = cut.end > cut.begin;
  const auto per_sample = target.sizes();
  at::Tensor greatest = has_classes ? values.amax(cut.class_dim)
                                    : at::full(per_sample, -std::numeric_limits<double>::infinity(),
                                               values.options());
  greatest = reduced(greatest, ReduceOp::max, cut);
  at::Tensor sums;
  if (has_classes) {
    const OwnTargets own = own_targets(target, cut);
    const at::Tensor shifted = values - greatest.unsqueeze(cut.class_dim);
    const at::Tensor picked = shifted.gather(cut.class_dim, own.index).squeeze(cut.class_dim);
    sums = at::stack({shifted.exp_().sum(cut.class_dim), picked.masked_fill(own.elsewhere, 0)});
  } else {
    auto sizes = per_sample.vec();
    sizes.insert(sizes.begin(), 2);
    sums = at::zeros(sizes, values.options());
  }
  sums = reduced(sums, ReduceOp::sum, cut);
  const at::Tensor log_sum = sums[0].log();
  return {log_sum + greatest, log_sum - sums[1]};
}

/// The gradient of the logits: softmax times both gradients, less the loss's at the target.
at::Tensor local_gradient(const at::Tensor& logits, const at::Tensor& target,
                          const at::Tensor& log_sum_exp, const at::Tensor& of_sum,
                          const at::Tensor& of_loss, const ClassCut& cut) {
  at::Tensor gradient = logits.to(log_sum_exp.scalar_type())
                            .sub(log_sum_exp.unsqueeze(cut.class_dim))
                            .exp_()
                            .mul_((of_sum + of_loss).unsqueeze(cut.class_dim))
                            .contiguous();
  if (cut.end > cut.begin) {
    const OwnTargets own = own_targets(target, cut);
    const at::Tensor taken = of_loss.masked_fill(own.elsewhere, 0).neg_();
    gradient.scatter_add_(cut.class_dim, own.index, taken.unsqueeze(cut.class_dim));
  }
  return gradient.to(logits.scalar_type());
}

struct Terms : torch::autograd::Function<Terms> {
  static variable_list forward(AutogradContext* context, const at::Tensor& logits,
                               const at::Tensor& target, std::int64_t class_dim) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const DTensorMeta& meta = *dtensor_meta(logits);
    const ClassCut cut = cut_of(meta, class_dim);
    LocalTerms local{outside_local(meta.local()), outside_local(meta.local())};
    if (meta.is_inside()) local = local_terms(meta.local(), dtensor_meta(target)->local(), cut);
    const auto sums = make_dtensor(local.log_sum_exp.contiguous(), meta.mesh(), cut.samples);
    const auto losses = make_dtensor(local.loss.contiguous(), meta.mesh(), cut.samples);
    context->save_for_backward({logits, target, sums});
    context->saved_data["class_dim"] = class_dim;
    context->set_materialize_grads(false);
    return {sums, losses};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    TESSERA_CHECK(!at::GradMode::is_enabled(),
                  "cross_entropy: logits whose classes are cut can be differentiated once only; ",
                  "redistribute them to Replicate along the classes first for a second derivative");
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const auto saved = context->get_saved_variables();
    const DTensorMeta& meta = *dtensor_meta(saved[0]);
    const ClassCut cut = cut_of(meta, context->saved_data["class_dim"].toInt());
    const DTensorMeta& sums = *dtensor_meta(saved[2]);
    // Moved on all ranks alike, inside of the mesh and outside.
    std::vector<at::Tensor> parts;
    for (const auto& gradient : gradients) {
      parts.push_back(gradient.defined()
                          ? dtensor_meta(move(gradient, cut.mesh, cut.samples))->local()
                          : at::zeros({}, sums.local().options()).expand_as(sums.local()));
    }
    at::Tensor local = outside_local(meta.local());
    if (meta.is_inside()) {
      local = local_gradient(meta.local(), dtensor_meta(saved[1])->local(), sums.local(), parts[0],
                             parts[1], cut);
    }
    return {make_dtensor(std::move(local), cut.mesh, meta.layout()), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

bool has_cut_classes(const at::Tensor& logits, std::int64_t class_dim) {
  return !layout_of(logits).splits(class_dim).empty();
}

at::Tensor with_simple_classes(const at::Tensor& logits, std::int64_t class_dim) {
  Placements placements = placements_of(logits);
  for (auto& placement : placements) {
    const auto* strided = std::get_if<StridedShard>(&placement);
    if (strided != nullptr && strided->dim == class_dim) placement = Shard(class_dim);
    if (is_partial(placement)) placement = Shard(class_dim);
  }
  return redistribute(logits, placements);
}

at::Tensor class_log_sum_exp(const at::Tensor& logits, std::int64_t class_dim) {
  const Layout samples = sample_layout(layout_of(logits), class_dim);
  const auto any_class = zeros(samples.shape(), mesh_of(logits), samples.placements(), at::kLong);
  return class_terms(logits, any_class, class_dim).log_sum_exp;
}

ClassTerms class_terms(const at::Tensor& logits, const at::Tensor& target, std::int64_t class_dim) {
  const CauseScope cause("cross_entropy");
  const Layout samples = sample_layout(layout_of(logits), class_dim);
  const auto terms = Terms::apply(logits, move(target, mesh_of(logits), samples), class_dim);
  return {terms[0], terms[1]};
}

}  // namespace tessera::detail
