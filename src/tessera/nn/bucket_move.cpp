#include "tessera/nn/bucket_move.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include <ATen/core/LegacyTypeDispatch.h>

#include "tessera/comm/collectives.h"
#include "tessera/comm/recorder.h"
#include "tessera/tensor/conversion.h"
#include "tessera/tensor/dtensor_meta.h"

namespace tessera::nn::detail {
namespace {

/// What one collective does to a tensor: the sum over mesh dims, whole or in pieces of a tensor dim.
struct Reduction {
  std::vector<std::int64_t> mesh_dims;
  /// The dim that is scattered; nothing for an all_reduce.
  std::optional<std::int64_t> dim;

  bool operator==(const Reduction&) const = default;
};

/// Whether a dim is cut the same in both layouts; `added`, where given, cuts on in the second.
bool has_same_cuts(const Layout& from, const Layout& to, std::int64_t dim,
                   std::optional<std::int64_t> added) {
  const auto before = from.splits(dim);
  auto after = to.splits(dim);
  if (added && (after.empty() || after.back().mesh_dim != *added)) return false;
  if (added) after = after.first(after.size() - 1);
  return std::equal(before.begin(), before.end(), after.begin(), after.end());
}

/// The collective that brings a tensor from one layout to the other; nothing when it takes more.
std::optional<Reduction> reduction_between(const Layout& from, const Layout& to) {
  Reduction found;
  const auto& before = from.placements();
  const auto& after = to.placements();
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (before[i] == after[i]) continue;
    if (before[i] != Placement(Partial())) return std::nullopt;
    const auto* shard = std::get_if<Shard>(&after[i]);
    if (shard == nullptr && !is_replicate(after[i])) return std::nullopt;
    if (shard != nullptr) found.dim = shard->dim;
    found.mesh_dims.push_back(static_cast<std::int64_t>(i));
  }
  // Scattering over several mesh dims, or summing over one and scattering over another, takes two.
  if (found.mesh_dims.empty() || (found.dim && found.mesh_dims.size() > 1)) return std::nullopt;
  for (std::int64_t dim = 0; dim < from.ndim(); ++dim) {
    const bool is_scattered = found.dim == dim && from.mesh().size(found.mesh_dims.front()) > 1;
    const auto added = is_scattered ? std::optional(found.mesh_dims.front()) : std::nullopt;
    if (!has_same_cuts(from, to, dim, added)) return std::nullopt;
  }
  return found;
}

/// Tensors that one collective reduces.
struct Bucket {
  DeviceMesh mesh;
  Reduction reduction;
  std::vector<std::size_t> items;
};

std::vector<at::Tensor> reduce(const Bucket& bucket, const std::vector<at::Tensor>& locals) {
  const Group group = bucket.mesh.group(std::span<const std::int64_t>(bucket.reduction.mesh_dims));
  const CollectiveOptions options{.async_op = true};
  if (!bucket.reduction.dim) return all_reduce(locals, ReduceOp::sum, group, options);
  return reduce_scatter(locals, *bucket.reduction.dim, ReduceOp::sum, group, options);
}

}  // namespace

std::vector<at::Tensor> move_together(const std::vector<at::Tensor>& tensors,
                                      const std::vector<Layout>& targets) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  std::vector<at::Tensor> moved(tensors.size());
  std::vector<Bucket> buckets;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto& meta = *tessera::detail::dtensor_meta(tensors[i]);
    const auto reduction = reduction_between(meta.layout(), targets[i]);
    if (!reduction) {
      moved[i] = tessera::detail::move(tensors[i], meta.mesh(), targets[i], {.async_op = true});
      continue;
    }
    auto found = std::find_if(buckets.begin(), buckets.end(), [&](const Bucket& bucket) {
      return bucket.mesh == meta.mesh() && bucket.reduction == *reduction;
    });
    if (found == buckets.end()) {
      found = buckets.insert(found, {.mesh = meta.mesh(), .reduction = *reduction, .items = {}});
    }
    found->items.push_back(i);
  }
  for (const auto& bucket : buckets) {
    if (!bucket.mesh.shape().contains(bucket.mesh.world().rank())) {
      for (const auto i : bucket.items) {
        const auto& meta = *tessera::detail::dtensor_meta(tensors[i]);
        moved[i] = tessera::detail::make_dtensor(meta.local(), bucket.mesh, targets[i]);
      }
      continue;
    }
    std::vector<at::Tensor> locals;
    for (const auto i : bucket.items)
      locals.push_back(tessera::detail::dtensor_meta(tensors[i])->local());
    auto reduced = reduce(bucket, locals);
    for (std::size_t k = 0; k < bucket.items.size(); ++k) {
      const auto i = bucket.items[k];
      moved[i] = tessera::detail::make_dtensor(std::move(reduced[k]), bucket.mesh, targets[i]);
    }
  }
  return moved;
}

}  // namespace tessera::nn::detail
