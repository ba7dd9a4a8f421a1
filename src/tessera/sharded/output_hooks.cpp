#include "tessera/sharded/output_hooks.h"

#include <algorithm>
#include <set>
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

std::vector<std::int64_t> ranks_of(const ShardingSpec& spec) {
  std::vector<std::int64_t> ranks;
  if (const auto* chunks = std::get_if<ChunkShardingSpec>(&spec)) {
    for (const auto& placement : chunks->placements()) ranks.push_back(placement.rank);
  } else {
    for (const auto& shard : std::get<EnumerableShardingSpec>(spec).shards()) {
      ranks.push_back(shard.placement.rank);
    }
  }
  return ranks;
}

std::string no_layout_text(const ShardingSpec& spec) {
  return concat(spec,
                " places no DTensor: ranks hold several shards, or the shards form no even grid");
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

template <typename Change>
nn::ForwardHook hook_of(const Change& change) {
  return [change](torch::nn::Module&, nn::TensorLeaves, nn::TensorLeaves outputs) {
    for (at::Tensor* tensor : outputs) {
      if (tensor->defined() && is_dtensor(*tensor)) *tensor = change(*tensor);
    }
  };
}

}  // namespace

void check_output_spec(const std::string& path, const ShardingSpec& spec, const Group& group) {
  const auto ranks = ranks_of(spec);
  for (const auto rank : ranks) {
    TESSERA_CHECK(std::count(group.ranks().begin(), group.ranks().end(), rank) == 1,
                  "shard_module: the output_plan for '", path, "' names rank ", rank,
                  ", which does not exist in group ", group.name(), " of ranks [",
                  joined(group.ranks(), ","), "]");
  }
  const auto* boxes = std::get_if<EnumerableShardingSpec>(&spec);
  const bool fits = boxes != nullptr ? sharded::find_layout(spec, shape_of(*boxes)).has_value()
                                     : std::set(ranks.begin(), ranks.end()).size() == ranks.size();
  TESSERA_CHECK(fits, "shard_module: the output_plan for '", path, "' is ", no_layout_text(spec),
                "; give chunks on different ranks");
}

at::Tensor resharded_output(const at::Tensor& tensor, const ShardingSpec& spec) {
  const auto layout = sharded::find_layout(spec, tensor.sizes().vec());
  TESSERA_CHECK(layout.has_value(), "output_plan: ", no_layout_text(spec));
  const DeviceMesh& mesh = mesh_of(tensor);
  // On the tensor's own mesh where that is the same but for names, so that it goes on with others.
  if (mesh.shape().same_ranks(layout->mesh())) return redistribute(tensor, layout->placements());
  return redistribute(tensor, DeviceMesh(mesh.device_type(), layout->mesh(), mesh.world()),
                      layout->placements());
}

at::Tensor local_output(const at::Tensor& tensor) {
  const at::Tensor values = reduced(tensor);
  at::Tensor local = to_local(values);
  const std::int64_t dim = dim_of_single_elements(layout_of(values));
  if (dim >= 0 && dim < local.dim() && local.size(dim) == 1) return local.squeeze(dim);
  return local;
}

nn::ForwardHook reshard_output_hook(const ShardingSpec& spec) {
  return hook_of([spec](const at::Tensor& tensor) { return resharded_output(tensor, spec); });
}

nn::ForwardHook local_tensor_hook() { return hook_of(local_output); }

}  // namespace tessera::sharded::detail
