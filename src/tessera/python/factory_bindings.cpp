#include <cstdint>
#include <optional>
#include <vector>

#include "tessera/python/bindings.h"
#include "tessera/python/placement_cast.h"
#include "tessera/python/scalar_cast.h"
#include "tessera/tensor/factories.h"

namespace tessera::python {
namespace {

using Sizes = std::vector<std::int64_t>;

using SizedFactory = at::Tensor (*)(const Sizes&, const DeviceMesh&, const Placements&,
                                    const at::TensorOptions&);

void bind_sized(py::module_& module, const char* name, SizedFactory factory) {
  module.def(name, [factory](const Sizes& sizes, const DeviceMesh& mesh, py::handle placements,
                             std::optional<at::ScalarType> dtype, bool requires_grad) {
    const Placements wanted = placements_from(placements);
    const py::gil_scoped_release no_gil;
    return factory(sizes, mesh, wanted, options_of(dtype, requires_grad));
  });
}

}  // namespace

void bind_factories(py::module_& module) {
  bind_sized(module, "zeros", &zeros);
  bind_sized(module, "ones", &ones);
  bind_sized(module, "empty", &empty);
  bind_sized(module, "rand", &rand);
  bind_sized(module, "randn", &randn);
  module.def("full",
             [](const Sizes& sizes, py::handle number, const DeviceMesh& mesh,
                py::handle placements, std::optional<at::ScalarType> dtype, bool requires_grad) {
               const Placements wanted = placements_from(placements);
               const at::Scalar value = scalar_from(number);
               const py::gil_scoped_release no_gil;
               return full(sizes, value, mesh, wanted, options_of(dtype, requires_grad));
             });
  module.def("arange",
             [](py::handle start, py::handle end, py::handle step, const DeviceMesh& mesh,
                py::handle placements, std::optional<at::ScalarType> dtype, bool requires_grad) {
               const Placements wanted = placements_from(placements);
               const at::Scalar first = scalar_from(start);
               const at::Scalar last = scalar_from(end);
               const at::Scalar stride = scalar_from(step);
               const py::gil_scoped_release no_gil;
               return arange(first, last, stride, mesh, wanted, options_of(dtype, requires_grad));
             });
}

}  // namespace tessera::python
