#include "tessera/nn/boundary.h"

#include "tessera/base/check.h"
#include "tessera/tensor/dtensor.h"

namespace tessera::nn::detail {
namespace {

bool is_last_dim(const Placement& placement, std::int64_t ndim) {
  const auto* shard = std::get_if<Shard>(&placement);
  return shard != nullptr && (shard->dim == -1 || shard->dim == ndim - 1);
}

}  // namespace

void Boundary::cross(TensorLeaves tensors) const {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i]->defined()) continue;
    TESSERA_CHECK(i < crossings.size(), name, ": ", tensors.size(), " tensors come, but ",
                  crossings.size(), " layout(s) are given; give one per tensor, std::nullopt for ",
                  "those to be left alone");
    *tensors[i] = cross_one(*tensors[i], crossings[i]);
  }
}

at::Tensor Boundary::cross_one(const at::Tensor& tensor, const Crossing& crossing) const {
  if (!crossing.taken_for && !crossing.brought_to && !makes_local) return tensor;
  at::Tensor result = is_dtensor(tensor) ? tensor : distributed(tensor, crossing);
  if (!is_dtensor(result)) return result;
  TESSERA_CHECK(mesh_of(result) == mesh, name, ": a tensor on ", mesh_of(result),
                " given, but the ", "module works on ", mesh,
                "; redistribute it to that mesh first");
  if (crossing.brought_to) {
    Placements placements = placements_of(result);
    placements[static_cast<std::size_t>(mesh_dim)] = *crossing.brought_to;
    // Where nothing moves too: the gradient comes back placed as the tensor was, by one reduction, and
    // not as whatever sum the module's layers left.
    RedistributeOptions options;
    if (result.requires_grad()) options.backward_dtype = result.scalar_type();
    result = redistribute(result, placements, options);
  }
  return makes_local ? to_local(result) : result;
}

at::Tensor Boundary::distributed(const at::Tensor& tensor, const Crossing& crossing) const {
  if (!crossing.taken_for) return tensor;
  TESSERA_CHECK(mesh.ndim() == 1, name, ": a plain tensor given to a module on ", mesh,
                ", whose layout along the other mesh dims nobody knows; pass a DTensor");
  FromLocalOptions options;
  if (crossing.last_size && tensor.dim() > 0 && is_last_dim(*crossing.taken_for, tensor.dim())) {
    auto shape = tensor.sizes().vec();
    shape.back() = *crossing.last_size;
    options.shape = std::move(shape);
  }
  return from_local(tensor, mesh, {*crossing.taken_for}, options);
}

}  // namespace tessera::nn::detail
