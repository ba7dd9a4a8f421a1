#include "tessera/sharded/output_hooks.h"

#include <algorithm>
#include <variant>

#include "tessera/base/check.h"
#include "tessera/comm/world.h"
#include "tessera/tensor/dtensor.h"

namespace tessera::sharded::detail {
namespace {

/// The smallest tensor that all shards fit into.
Shape shape_of(const EnumerableShardingSpec& spec) {
  Shape shape(spec.shards().front().sizes.size(), 0);
  for (const auto& shard : spec.shards()) {
    for (std::size_t d = 0; d < shape.size(); ++d) {
      shape[d] = std::max(shape[d], shard.offsets[d] + shard.sizes[d]);
    }
  }
  return shape;
}

std::string no_layout_text(const ShardingSpec& spec) {
  return concat(spec,
                " places no DTensor: ranks hold several shards, or the shards form no even grid");
}

at::Tensor resharded(const at::Tensor& tensor, const ShardingSpec& spec) {
  const auto layout = sharded::find_layout(spec, tensor.sizes().vec());
  TESSERA_CHECK(layout.has_value(), "output_plan: ", no_layout_text(spec));
  const DeviceMesh& mesh = mesh_of(tensor);
  // On the tensor's own mesh where that is the same but for names, so that it goes on with others.
  if (mesh.shape().same_ranks(layout->mesh())) return redistribute(tensor, layout->placements());
  return redistribute(tensor, DeviceMesh(mesh.device_type(), layout->mesh(), mesh.world()),
                      layout->placements());
}

/// The values that contributions stand for.
at::Tensor reduced(const at::Tensor& tensor) {
  Placements placements = placements_of(tensor);
  if (std::none_of(placements.begin(), placements.end(), is_partial)) return tensor;
  for (auto& placement : placements) {
    if (is_partial(placement)) placement = Replicate();
  }
  return redistribute(tensor, placements);
}

/// The only dim that is cut into chunks, if the chunks have one element; -1 otherwise.
std::int64_t dim_of_single_elements(const Layout& layout) {
  const auto& placements = layout.placements();
  if (std::count_if(placements.begin(), placements.end(), is_sharded) != 1) return -1;
  const auto found = std::find_if(placements.begin(), placements.end(), is_sharded);
  const auto* shard = std::get_if<Shard>(&*found);
  if (shard == nullptr || layout.local_size(shard->dim, 0) != 1) return -1;
  return shard->dim;
}

at::Tensor local_part(const at::Tensor& tensor) {
  const at::Tensor values = reduced(tensor);
  at::Tensor local = to_local(values);
  const std::int64_t dim = dim_of_single_elements(layout_of(values));
  if (dim >= 0 && dim < local.dim() && local.size(dim) == 1) return local.squeeze(dim);
  return local;
}

template <typename Change>
nn::ForwardHook hook_of(const Change& change) {
  return [change](torch::nn::Module&, nn::TensorLeaves, nn::TensorLeaves outputs) {
    for (at::Tensor* tensor : outputs) {
      if (tensor->defined() && is_dtensor(*tensor)) *tensor = change(*tensor);
    }
  };
}

}  // namespace

void check_output_spec(const std::string& path, const ShardingSpec& spec) {
  bool fits = true;
  if (const auto* chunks = std::get_if<ChunkShardingSpec>(&spec)) {
    std::vector<std::int64_t> ranks;
    for (const auto& placement : chunks->placements()) ranks.push_back(placement.rank);
    std::sort(ranks.begin(), ranks.end());
    fits = std::adjacent_find(ranks.begin(), ranks.end()) == ranks.end();
  } else {
    fits = sharded::find_layout(spec, shape_of(std::get<EnumerableShardingSpec>(spec))).has_value();
  }
  TESSERA_CHECK(fits, "shard_module: the output_plan for '", path, "' is ", no_layout_text(spec),
                "; give chunks on different ranks");
}

nn::ForwardHook reshard_output_hook(const ShardingSpec& spec) {
  return hook_of([spec](const at::Tensor& tensor) { return resharded(tensor, spec); });
}

nn::ForwardHook local_tensor_hook() { return hook_of(local_part); }

}  // namespace tessera::sharded::detail
