#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/concat.h"
#include "tessera/comm/device_mesh.h"
#include "tessera/comm/group.h"
#include "tessera/python/bindings.h"

namespace tessera::python {
namespace {

using Sizes = std::vector<std::int64_t>;
using Names = std::vector<std::string>;

py::tuple coordinate_of(const DeviceMesh& mesh) { return py::tuple(py::cast(*mesh.coordinate())); }

}  // namespace

void bind_meshes(py::module_& module) {
  py::class_<Group>(module, "Group", "Some ranks that communicate, as one of them sees it.")
      .def_property_readonly("ranks", &Group::ranks, "The members' global ranks, in order.")
      .def_property_readonly("name", &Group::name, "What errors and records call it.")
      .def_property_readonly("engine", &Group::engine,
                             "How the members communicate: threads, gloo, mpi, ...")
      .def("size", &Group::size, "How many members there are.")
      .def("rank", &Group::index, "This rank's place among the members.")
      .def("__eq__",
           [](const Group& self, py::handle other) {
             return py::isinstance<Group>(other) && self == other.cast<const Group&>();
           })
      .def("__hash__", [](const Group& self) { return std::hash<void*>{}(&self.state()); })
      .def("__repr__", [](const Group& self) {
        return concat("Group(", self.name(), ", ranks {", joined(self.ranks(), ","), "}, ",
                      self.engine(), ")");
      });
  module.def("world_group", [] { return World::current().group(); });
  module.def("group_of", [](const Sizes& ranks) { return World::current().group(ranks); });

  // The methods that users see are in tessera/device_mesh.py.
  py::class_<DeviceMesh>(module, "DeviceMesh", py::dynamic_attr())
      .def(py::init([](std::string device_type, const Sizes& sizes, const Names& names,
                       const Sizes& ranks) {
             return DeviceMesh(std::move(device_type), MeshShape(sizes, names, ranks));
           }),
           py::arg("device_type"), py::arg("sizes"), py::arg("names"), py::arg("ranks"))
      .def_property_readonly("device_type", &DeviceMesh::device_type, "`cpu`, `cuda`, ...")
      .def_property_readonly("ndim", &DeviceMesh::ndim, "How many dims it has.")
      .def("_sizes", [](const DeviceMesh& self) { return self.shape().sizes(); })
      .def("_names", [](const DeviceMesh& self) { return self.shape().names(); })
      .def("_ranks", [](const DeviceMesh& self) { return self.shape().ranks(); })
      .def("_text", [](const DeviceMesh& self) { return self.shape().to_string(); })
      .def("_coordinate",
           [](const DeviceMesh& self) -> std::optional<py::tuple> {
             if (!self.coordinate()) return std::nullopt;
             return coordinate_of(self);
           })
      .def("_world_rank", [](const DeviceMesh& self) { return self.world().rank(); })
      .def("_group", [](const DeviceMesh& self) { return self.group(); })
      .def("_group_along", [](const DeviceMesh& self, std::int64_t dim) { return self.group(dim); })
      .def("_slice", [](const DeviceMesh& self, const Names& names) { return self.slice(names); })
      .def("_flatten_to",
           [](const DeviceMesh& self, const std::string& name) { return self.flatten(name); })
      .def("_unflatten_to", [](const DeviceMesh& self, std::int64_t dim, const Sizes& sizes,
                               const Names& names) { return self.unflatten(dim, sizes, names); })
      .def_static("_of_group",
                  [](const Group& group, const std::string& device_type, const std::string& name) {
                    return DeviceMesh::from_group(group, device_type, name);
                  })
      .def("__eq__",
           [](const DeviceMesh& self, py::handle other) {
             return py::isinstance<DeviceMesh>(other) && self == other.cast<const DeviceMesh&>();
           })
      .def("__hash__", &DeviceMesh::hash);
}

}  // namespace tessera::python
