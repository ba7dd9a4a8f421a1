#include "tensor/op_layouts.h"

#include <torch/torch.h>

#include "tessera/tensor/dtensor.h"

namespace tessera::test {
namespace {

/// What rank `coordinate` of `count` multiplies the tensor by, so that the sum is the tensor.
std::int64_t share(std::int64_t coordinate, std::int64_t count, std::int64_t salt) {
  const auto of = [&](std::int64_t i) { return (i + salt) % 4 - 1; };
  if (coordinate > 0) return of(coordinate);
  std::int64_t rest = 1;
  for (std::int64_t i = 1; i < count; ++i) rest -= of(i);
  return rest;
}

/// This rank's contribution to `whole` along one mesh dim.
at::Tensor contribution(const at::Tensor& whole, ReduceOp op, std::int64_t coordinate,
                        std::int64_t count, std::int64_t salt) {
  const std::int64_t distance = (coordinate + salt) % count;
  switch (op) {
    case ReduceOp::sum:
      return whole * share(coordinate, count, salt);
    case ReduceOp::avg:
      return whole * (count * share(coordinate, count, salt));
    case ReduceOp::max:
      return whole - distance;
    case ReduceOp::min:
      return whole + distance;
    case ReduceOp::product:
      return distance == 0 ? whole.clone() : torch::ones_like(whole);
    default:
      return whole.clone();
  }
}

std::vector<ReduceOp> partial_ops(const at::Tensor& tensor) {
  if (tensor.scalar_type() == at::kBool) return {ReduceOp::bor, ReduceOp::band};
  if (!tensor.is_floating_point() && !tensor.is_complex()) return {ReduceOp::sum, ReduceOp::max};
  if (tensor.is_complex()) return {ReduceOp::sum};
  // Sums are what ops make; the others are there to be reduced first.
  return {ReduceOp::sum, ReduceOp::sum, ReduceOp::sum, ReduceOp::sum,    ReduceOp::avg,
          ReduceOp::avg, ReduceOp::max, ReduceOp::min, ReduceOp::product};
}

}  // namespace

std::vector<std::vector<std::int64_t>> mesh_sizes(std::int64_t ranks) {
  std::vector<std::vector<std::int64_t>> all = {{ranks}, {ranks}, {1, ranks}, {ranks, 1}};
  if (ranks == 4) all.insert(all.end(), 4, {2, 2});
  return all;
}

ArgumentLayout random_argument_layout(Random& random, const at::Tensor& tensor,
                                      std::int64_t mesh_ndim) {
  ArgumentLayout layout;
  PlacementOptions options;
  options.max_split_factor = random.one_in(3) ? 3 : 0;
  if (random.one_in(3)) options.partial_ops = partial_ops(tensor);
  layout.placements = random_placements(random, mesh_ndim, tensor.dim(), options);
  layout.is_transposed = tensor.dim() > 1 && random.one_in(6);
  layout.is_scattered = tensor.dim() > 1 && random.one_in(12);
  layout.salt = random.between(0, 11);
  return layout;
}

at::Tensor placed(const at::Tensor& tensor, const DeviceMesh& mesh, const ArgumentLayout& layout) {
  Placements held = layout.placements;
  for (auto& placement : held) {
    if (is_partial(placement)) placement = Replicate();
  }
  const at::NoGradGuard no_history;
  at::Tensor local =
      to_local(distribute_tensor(tensor.detach(), mesh, held, {.src_data_rank = std::nullopt}));
  for (std::int64_t dim = 0; dim < mesh.ndim(); ++dim) {
    const auto& placement = layout.placements[static_cast<std::size_t>(dim)];
    const auto* partial = std::get_if<Partial>(&placement);
    if (partial == nullptr) continue;
    local = contribution(local, partial->op, mesh.local_rank(dim),
                         mesh.shape().sizes()[static_cast<std::size_t>(dim)], layout.salt);
  }
  if (layout.is_scattered) local = local.transpose(0, -1).contiguous().transpose(0, -1);
  return from_local(local, mesh, layout.placements, {.shape = tensor.sizes().vec()});
}

}  // namespace tessera::test
