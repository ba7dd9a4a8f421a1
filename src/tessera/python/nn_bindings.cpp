#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <torch/csrc/autograd/python_variable.h>
#include <torch/nn/module.h>

#include "tessera/nn/clip_grad.h"
#include "tessera/nn/data_parallel.h"
#include "tessera/nn/fully_shard.h"
#include "tessera/nn/gradient_sync.h"
#include "tessera/python/bindings.h"
#include "tessera/python/placement_cast.h"
#include "tessera/tensor/dtensor.h"

namespace tessera::python {
namespace {

using Module = torch::nn::Module;

/// The tensors of a Python module under their names, as a module of libtorch. They are the same
/// tensors, so what is done to them in place is done to the Python module.
std::shared_ptr<Module> mirror_of(const py::handle& module) {
  auto mirror = std::make_shared<Module>();
  const auto each = [](const py::dict& members, const auto& add) {
    for (const auto& [name, value] : members) {
      if (!value.is_none()) add(name.template cast<std::string>(), value);
    }
  };
  each(module.attr("_parameters"), [&](const std::string& name, py::handle value) {
    const at::Tensor& parameter = THPVariable_Unpack(value.ptr());
    mirror->register_parameter(name, parameter, parameter.requires_grad());
  });
  each(module.attr("_buffers"), [&](const std::string& name, py::handle value) {
    mirror->register_buffer(name, THPVariable_Unpack(value.ptr()));
  });
  each(module.attr("_modules"), [&](const std::string& name, py::handle value) {
    mirror->register_module(name, mirror_of(value));
  });
  return mirror;
}

void py_data_parallel(const py::handle& module, const DeviceMesh& mesh, std::int64_t bucket_bytes) {
  const auto mirror = mirror_of(module);
  const py::gil_scoped_release no_gil;
  nn::data_parallel(*mirror, mesh, {.bucket_bytes = bucket_bytes});
}

void py_fully_shard(const py::handle& module, const DeviceMesh& mesh, std::string mesh_dim,
                    std::int64_t min_elements, std::optional<std::int64_t> bucket_bytes) {
  const auto mirror = mirror_of(module);
  const py::gil_scoped_release no_gil;
  nn::fully_shard(*mirror, mesh,
                  {.mesh_dim = std::move(mesh_dim),
                   .min_elements = min_elements,
                   .bucket_bytes = bucket_bytes});
}

double py_clip_grad_norm(const std::vector<at::Tensor>& parameters, double max_norm,
                         double norm_type, bool error_if_nonfinite) {
  return nn::clip_grad_norm(parameters, max_norm,
                            {.norm_type = norm_type, .error_if_nonfinite = error_if_nonfinite});
}

/// `value` with this placement along a mesh dim, and as it is along the others.
at::Tensor place_along(const at::Tensor& value, std::int64_t mesh_dim, Placement wanted,
                       bool async_op) {
  auto* shard = std::get_if<Shard>(&wanted);
  if (shard != nullptr && shard->dim < 0) shard->dim += value.dim();
  Placements placements = placements_of(value);
  auto& given = placements.at(static_cast<std::size_t>(mesh_dim));
  if (given == wanted) return value;
  given = wanted;
  return redistribute(value, placements, {.async_op = async_op});
}

at::Tensor py_place_along(const at::Tensor& value, std::int64_t mesh_dim, py::handle placement,
                          bool async_op) {
  Placement wanted = placement_from(placement);
  const py::gil_scoped_release no_gil;
  return place_along(value, mesh_dim, std::move(wanted), async_op);
}

/// Has contributions to the gradient of a replicated `value` summed once, for all who use it. Left to
/// the operation before it they are often reduce-scattered, and what follows pays for that with many
/// small messages.
void reduce_gradient_along(const at::Tensor& value, std::int64_t mesh_dim) {
  // A leaf's gradient is placed anyway, and its hooks would pile up.
  if (value.grad_fn() == nullptr || !at::GradMode::is_enabled()) return;
  value.register_hook([mesh_dim](const at::Tensor& gradient) {
    return is_dtensor(gradient) ? place_along(gradient, mesh_dim, Replicate(), false) : gradient;
  });
}

}  // namespace

// The functions that users see are in tessera/parallel.py and tessera/data_parallel.py.
void bind_nn(py::module_& module) {
  module.def("data_parallel", &py_data_parallel);
  module.def("fully_shard", &py_fully_shard);
  module.def("clip_grad_norm", &py_clip_grad_norm, py::call_guard<py::gil_scoped_release>());
  module.def("place_along", &py_place_along);
  module.def("reduce_gradient_along", &reduce_gradient_along);
  py::class_<nn::NoGradientSync>(module, "NoGradientSync").def(py::init<>());
}

}  // namespace tessera::python
