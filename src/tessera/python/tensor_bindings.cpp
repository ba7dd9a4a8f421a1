#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/layout/picture.h"
#include "tessera/plan/redistribute_plan.h"
#include "tessera/python/bindings.h"
#include "tessera/python/placement_cast.h"
#include "tessera/tensor/dtensor.h"
#include "tessera/tensor/dtensor_meta.h"
#include "tessera/tensor/is_placed.h"

namespace tessera::python {
namespace {

using OptionalDtype = std::optional<at::ScalarType>;

at::Tensor py_distribute(const at::Tensor& tensor, const DeviceMesh& mesh, py::handle placements,
                         std::optional<std::int64_t> src_data_rank) {
  const Placements wanted = placements_from(placements);
  const py::gil_scoped_release no_gil;
  return distribute_tensor(tensor, mesh, wanted, {.src_data_rank = src_data_rank});
}

at::Tensor py_from_local(const at::Tensor& local, const DeviceMesh& mesh, py::handle placements,
                         bool run_check, std::optional<std::vector<std::int64_t>> shape,
                         py::handle grad_placements) {
  const Placements wanted = placements_from(placements);
  const FromLocalOptions options{.run_check = run_check,
                                 .shape = std::move(shape),
                                 .grad_placements = optional_placements_from(grad_placements)};
  const py::gil_scoped_release no_gil;
  return from_local(local, mesh, wanted, options);
}

at::Tensor py_to_local(const at::Tensor& tensor, py::handle grad_placements) {
  const ToLocalOptions options{.grad_placements = optional_placements_from(grad_placements)};
  return to_local(tensor, options);
}

at::Tensor py_full_tensor(const at::Tensor& tensor, py::handle grad_placements) {
  const ToLocalOptions options{.grad_placements = optional_placements_from(grad_placements)};
  const py::gil_scoped_release no_gil;
  return full_tensor(tensor, options);
}

at::Tensor py_redistribute(const at::Tensor& tensor, const DeviceMesh* mesh, py::handle placements,
                           bool async_op, OptionalDtype forward_dtype,
                           OptionalDtype backward_dtype) {
  const Placements wanted = placements_from(placements);
  const auto* meta = detail::dtensor_meta(tensor);
  const bool casts = forward_dtype || backward_dtype;
  if (meta != nullptr && !casts &&
      detail::is_placed(*meta, mesh == nullptr ? meta->mesh() : *mesh, wanted)) {
    return tensor;  // Quicker than letting go of Python's lock.
  }
  const RedistributeOptions options{
      .async_op = async_op, .forward_dtype = forward_dtype, .backward_dtype = backward_dtype};
  const py::gil_scoped_release no_gil;
  if (mesh == nullptr) return redistribute(tensor, wanted, options);
  return redistribute(tensor, *mesh, wanted, options);
}

std::string explain(const at::Tensor& tensor, py::handle placements) {
  const Layout& from = layout_of(tensor);
  return plan_redistribute(from, Layout(from.mesh(), placements_from(placements), from.shape()))
      .explain();
}

std::string picture(const at::Tensor& tensor, bool ascii, bool color) {
  return draw(layout_of(tensor), {.ascii = ascii, .color = color});
}

py::list part_ranges(const at::Tensor& tensor) {
  py::list dims;
  const auto part = layout_of(tensor).part_of(mesh_of(tensor).world().rank());
  if (!part) return dims;
  for (const auto& owned : part->dims) {
    py::list runs;
    for (const auto& run : owned.runs()) runs.append(py::make_tuple(run.begin, run.end()));
    dims.append(runs);
  }
  return dims;
}

}  // namespace

void bind_tensors(py::module_& module) {
  module.def("distribute_tensor", &py_distribute);
  module.def("from_local", &py_from_local);
  module.def("to_local", &py_to_local);
  module.def("full_tensor", &py_full_tensor);
  module.def("redistribute", &py_redistribute);
  module.def("placements_of", [](const at::Tensor& x) { return tuple_of(placements_of(x)); });
  module.def("mesh_of", [](const at::Tensor& x) { return mesh_of(x); });
  module.def("layout_text", [](const at::Tensor& x) { return layout_of(x).to_string(); });
  module.def("local_shape_at", [](const at::Tensor& x, std::int64_t position) {
    return layout_of(x).local_shape(position);
  });
  module.def("part_ranges", &part_ranges);
  module.def("explain", &explain);
  module.def("picture", &picture);
}

}  // namespace tessera::python
