#include "tessera/sharded/shard_parameter.h"

#include <algorithm>
#include <utility>

#include <torch/nn/module.h>

#include "tessera/base/check.h"
#include "tessera/nn/module_paths.h"
#include "tessera/sharded/parameter_change.h"
#include "tessera/sharded/state.h"
#include "tessera/tensor/dtensor.h"
#include "tessera/tensor/in_place.h"

namespace tessera::sharded {
namespace detail {

at::Tensor own_tensor(const std::string& function, torch::nn::Module& module,
                      const std::string& name) {
  const std::string type = nn::detail::holder_name(module);
  for (const auto& child : module.named_children()) {
    TESSERA_CHECK(child.key() != name, function, ": Expected ", type, '.', name,
                  " to be a Tensor, but found ", nn::detail::holder_name(*child.value()),
                  "; name one of its parameters");
  }
  const auto parameters = module.named_parameters(/*recurse=*/false);
  if (const auto* parameter = parameters.find(name)) return *parameter;
  const auto buffers = module.named_buffers(/*recurse=*/false);
  if (const auto* buffer = buffers.find(name)) return *buffer;
  std::vector<std::string> names;
  for (const auto& parameter : parameters) names.push_back(parameter.key());
  for (const auto& buffer : buffers) names.push_back(buffer.key());
  TESSERA_CHECK(false, function, ": ", type, " has no attribute `", name, "`; its tensors are [",
                joined(names), "]");
}

namespace {

bool is_replicated(const at::Tensor& tensor) {
  const auto& placements = placements_of(tensor);
  return std::all_of(placements.begin(), placements.end(), is_replicate);
}

/// Throws unless a tensor can be changed in place.
void check_changeable(const std::string& function, const std::string& path,
                      const at::Tensor& tensor) {
  TESSERA_CHECK(tensor.defined(), function, ": Expected ", path,
                " to be a Tensor, but found an undefined one");
  TESSERA_CHECK(!is_dtensor(tensor) || is_replicated(tensor), function, ": param: ", path,
                " is a DTensor already, ", layout_of(tensor),
                "; redistribute_in_place places it otherwise");
  TESSERA_CHECK(tensor.is_leaf() && !tensor.is_view(), function, ": param: ", path,
                " has history or is a view, and would lose what it hangs together with; make it a "
                "tensor of its own");
}

}  // namespace

ParameterChange plan_change(const std::string& function, std::string path, const at::Tensor& tensor,
                            const ShardingSpec& spec, const Group& group) {
  TESSERA_CHECK(!tensor.defined() || (tensor.layout() == at::kStrided && tensor.is_contiguous()),
                function, ": param: ", path, " is not a contiguous Tensor");
  check_changeable(function, path, tensor);
  if (is_dtensor(tensor)) {
    for (const auto rank : group.ranks()) {
      TESSERA_CHECK(mesh_of(tensor).shape().position_of(rank).has_value(), function,
                    ": param: ", path, " is replicated on ", mesh_of(tensor), ", where rank ", rank,
                    " of group ", group.name(), " is not");
    }
  }
  const Shape shape = tensor.sizes().vec();
  (void)checked_shards(function, spec, shape, group, device_type_of(tensor));
  const auto layout = sharded::find_layout(spec, shape);
  TESSERA_CHECK(
      layout.has_value(), function, ": param: ", path, " cannot be placed as ", spec,
      " says, because no DTensor is: ranks hold several shards, or the shards form no even "
      "grid; give chunks on different ranks, or use shard_tensor");
  return {std::move(path), tensor,
          DeviceMesh(device_type_of(tensor), layout->mesh(), group.world()), *layout};
}

ParameterChange plan_replicated(const std::string& function, std::string path,
                                const at::Tensor& tensor, const DeviceMesh& mesh) {
  check_changeable(function, path, tensor);
  const Placements placements(static_cast<std::size_t>(mesh.ndim()), Replicate());
  return {std::move(path), tensor, mesh, Layout(mesh.shape(), placements, tensor.sizes().vec())};
}

std::string describe(const ParameterChange& change) {
  const at::Tensor& tensor = change.tensor;
  return concat(change.path, ' ', c10::getDtypeNames(tensor.scalar_type()).first, '[',
                joined(tensor.sizes(), ","), ']', tensor.requires_grad() ? " requires_grad" : "",
                tensor.grad().defined() ? " with gradient" : "", " to ", change.layout);
}

void apply(const ParameterChange& change, std::int64_t src_rank, const Group& group) {
  const auto placed = [&](const at::Tensor& tensor) {
    const at::Tensor whole = is_dtensor(tensor) ? full_tensor(tensor) : tensor;
    return place_from_member(concat("shard ", change.path), whole, src_rank, group, change.mesh,
                             change.layout);
  };
  const at::Tensor value = placed(change.tensor.detach());
  if (const at::Tensor& gradient = change.tensor.grad(); gradient.defined()) {
    value.mutable_grad() = placed(gradient.detach());
  }
  become(change.tensor, value);
}

}  // namespace detail

void shard_parameter(torch::nn::Module& module, const std::string& name, const ShardingSpec& spec,
                     std::int64_t src_rank, const std::optional<Group>& its_group) {
  constexpr const char* kName = "shard_parameter";
  const Group group = detail::group_or_current(its_group);
  detail::Agreement agreement(kName, group);
  std::optional<detail::ParameterChange> change;
  agreement.require_no_throw([&] {
    const at::Tensor tensor = detail::own_tensor(kName, module, name);
    change = detail::plan_change(kName, name, tensor, spec, group);
    detail::check_member(kName, "src_rank", src_rank, group);
  });
  agreement.same("src_rank", src_rank);
  agreement.same("sharding_spec", spec);
  agreement.same("param", change ? detail::describe(*change) : "");
  agreement.meet();
  detail::apply(*change, src_rank, group);
}

}  // namespace tessera::sharded
