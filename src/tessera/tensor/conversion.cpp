#include "tessera/tensor/conversion.h"

#include <algorithm>

#include "tessera/base/check.h"
#include "tessera/comm/recorder.h"
#include "tessera/tensor/dispatch.h"
#include "tessera/tensor/dtensor_meta.h"
#include "tessera/tensor/history.h"

namespace tessera::detail {
namespace {

using torch::autograd::variable_list;

/// What a backward pass needs to know of the forward one.
struct Memory {
  DeviceMesh mesh;
  Layout layout;
  Layout gradient;
};

at::Tensor make_from_local(const at::Tensor& local, const DeviceMesh& mesh, const Layout& layout) {
  register_dispatch();
  const bool is_inside = mesh.shape().contains(mesh.world().rank());
  // Strides are global: a local part that lies otherwise is put in order when an op needs it.
  return make_dtensor(is_inside ? without_history(local) : outside_local(local), mesh, layout);
}

/// How the gradient of a gradient is placed: as the tensor itself, since the adjoint of the adjoint is
/// the map itself. Reductions are sums here, and parts of a sum that are gradients get all of it.
Layout second_gradient(const Memory& memory) {
  if (!memory.layout.has_partial()) return memory.layout;
  Placements placements = memory.layout.placements();
  for (std::size_t i = 0; i < placements.size(); ++i) {
    if (!is_partial(placements[i])) continue;
    const bool is_summed = is_partial(memory.gradient.placements()[i]);
    placements[i] = is_summed ? Placement(Replicate()) : Placement(Partial());
  }
  return Layout(memory.layout.mesh(), std::move(placements), memory.layout.shape());
}

struct FromLocalBackward : torch::autograd::Node {
  explicit FromLocalBackward(Memory its_memory) : memory(std::move(its_memory)) {}

  variable_list apply(variable_list&& gradients) override {
    if (!gradients[0].defined() || !task_should_compute_output(0)) return variable_list(1);
    const CauseScope cause("backward of from_local");
    const auto gradient = move(gradients[0], memory.mesh, memory.gradient);
    return {unwrap_local(gradient, second_gradient(memory))};
  }
  [[nodiscard]] std::string name() const override { return "tessera::from_local"; }

  Memory memory;
};

struct ToLocalBackward : torch::autograd::Node {
  explicit ToLocalBackward(Memory its_memory) : memory(std::move(its_memory)) {}

  variable_list apply(variable_list&& gradients) override {
    if (!gradients[0].defined() || !task_should_compute_output(0)) return variable_list(1);
    return {wrap_local(gradients[0].contiguous(), memory.mesh, memory.gradient,
                       second_gradient(memory))};
  }
  [[nodiscard]] std::string name() const override { return "tessera::to_local"; }

  Memory memory;
};

}  // namespace

at::Tensor without_history(const at::Tensor& tensor) {
  return at::Tensor(tensor.unsafeGetTensorImpl()->shallow_copy_and_detach(
      /*version_counter=*/tensor.unsafeGetTensorImpl()->version_counter(),
      /*allow_tensor_metadata_change=*/true));
}

Layout checked_layout(const char* function, const DeviceMesh& mesh, const Placements& placements,
                      const Shape& shape) {
  TESSERA_CHECK(static_cast<std::int64_t>(placements.size()) == mesh.ndim(), function, ": ",
                placements.size(), " placement(s) ", to_string(placements), " given for ", mesh,
                "; `placements` must have the same length as `device_mesh.ndim`: one per mesh dim");
  try {
    return Layout(mesh.shape(), placements, shape);
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(concat(function, ": ", error.what()));
  }
}

Layout gradient_layout(const Layout& layout) {
  Placements placements = layout.placements();
  // Along mesh dims of one rank, too, though nothing is left to be reduced there.
  if (std::none_of(placements.begin(), placements.end(), is_partial)) return layout;
  for (auto& placement : placements) {
    if (is_partial(placement)) placement = Replicate();
  }
  return Layout(layout.mesh(), std::move(placements), layout.shape());
}

void check_device(const char* function, const at::Tensor& tensor, const DeviceMesh& mesh) {
  const std::string type = c10::DeviceTypeName(tensor.device().type(), /*lower_case=*/true);
  TESSERA_CHECK(type == mesh.device_type(), function, ": a tensor on ", type, " given for ", mesh,
                "; move it to ", mesh.device_type(), " first, or make a mesh for ", type);
}

void check_destination(const char* function, const DTensorMeta& meta, const DeviceMesh& mesh) {
  TESSERA_CHECK(&meta.mesh().world().state() == &mesh.world().state(), function, ": a tensor on ",
                meta.mesh(), " of one world cannot go to ", mesh, " of another");
  TESSERA_CHECK(meta.mesh().device_type() == mesh.device_type(), function, ": a tensor on ",
                meta.mesh(), " cannot go to ", mesh, "; copy it to the other kind of device first");
}

at::Tensor wrap_local(const at::Tensor& local, const DeviceMesh& mesh, const Layout& layout,
                      const Layout& gradient, const at::Tensor& values) {
  at::Tensor result = make_from_local(values.defined() ? values : local, mesh, layout);
  if (needs_history(local)) {
    record_history<FromLocalBackward>(result, local, Memory{mesh, layout, gradient});
  }
  return result;
}

at::Tensor unwrap_local(const at::Tensor& tensor, const Layout& gradient) {
  bring_up_to_date(tensor);
  const auto& meta = *dtensor_meta(tensor);
  at::Tensor result = without_history(meta.local_or_pending());
  if (needs_history(tensor)) {
    record_history<ToLocalBackward>(result, tensor, Memory{meta.mesh(), meta.layout(), gradient});
  }
  return result;
}

}  // namespace tessera::detail
