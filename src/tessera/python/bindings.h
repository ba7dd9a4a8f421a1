#pragma once

#include <torch/csrc/utils/pybind.h>

namespace tessera::python {

/// Each adds its part of the extension module `tessera._C`; the package's Python files put the
/// public face in front of it.
void bind_errors(py::module_& module);
void bind_placements(py::module_& module);
void bind_worlds(py::module_& module);
void bind_meshes(py::module_& module);
void bind_tensor_attributes(py::module_& module);
void bind_tensors(py::module_& module);
void bind_guards(py::module_& module);
void bind_factories(py::module_& module);
void bind_local_map(py::module_& module);
void bind_nn(py::module_& module);
void bind_collectives(py::module_& module);
void bind_traffic(py::module_& module);
void bind_sharded(py::module_& module);
void bind_shard_module(py::module_& module);

}  // namespace tessera::python
