#include <functional>
#include <string>
#include <type_traits>

#include "tessera/base/concat.h"
#include "tessera/layout/chunk.h"
#include "tessera/python/placement_cast.h"

namespace tessera::python {
namespace {

/// The Python classes of our placements, for a quick look at what an object is.
struct PlacementTypes {
  PyObject* replicate = nullptr;
  PyObject* shard = nullptr;
  PyObject* strided_shard = nullptr;
  PyObject* partial = nullptr;
};
PlacementTypes types;

[[noreturn]] void throw_no_placement(py::handle object) {
  throw py::type_error(concat(
      "a placement is Shard(dim), Replicate() or Partial(reduce_op), one for each mesh dim; ",
      std::string(py::repr(object)), " given"));
}

/// What PyTorch's own classes say about themselves.
Placement foreign_placement(py::handle object) {
  if (!py::hasattr(object, "is_replicate") || !py::hasattr(object, "is_partial")) {
    throw_no_placement(object);
  }
  if (object.attr("is_replicate")().cast<bool>()) return Replicate();
  if (object.attr("is_partial")().cast<bool>()) {
    return Partial(parse_reduce_op(std::string(py::str(object.attr("reduce_op")))));
  }
  if (!py::hasattr(object, "dim")) throw_no_placement(object);
  const auto dim = object.attr("dim").cast<std::int64_t>();
  if (py::hasattr(object, "split_factor")) {
    return StridedShard(dim, object.attr("split_factor").cast<std::int64_t>());
  }
  return Shard(dim);
}

ReduceOp reduce_op_named(const std::string& name) {
  try {
    return parse_reduce_op(name);
  } catch (const std::exception& error) {
    throw py::value_error(concat("Unrecognized reduce_op: ", error.what()));
  }
}

template <typename T>
py::class_<T> bind_placement(py::module_& module, const char* name, const char* text) {
  return py::class_<T>(module, name, text)
      .def("__eq__",
           [](const T& self, py::handle other) {
             return py::isinstance<T>(other) && self == other.cast<const T&>();
           })
      .def("__hash__", [](const T& self) { return std::hash<T>{}(self); })
      .def("__str__", [](const T& self) { return to_string(Placement(self)); })
      .def(
          "is_replicate", [](const T&) { return std::is_same_v<T, Replicate>; },
          "True for Replicate.")
      .def(
          "is_shard",
          [](const T& self, std::optional<std::int64_t> dim) {
            if constexpr (std::is_same_v<T, Shard>) return !dim || *dim == self.dim;
            return false;
          },
          py::arg("dim") = py::none(), "True for Shard; with a dim, only for that one.")
      .def(
          "is_partial",
          [](const T& self, std::optional<std::string> op) {
            if constexpr (std::is_same_v<T, Partial>) return !op || *op == to_string(self.op);
            return false;
          },
          py::arg("reduce_op") = py::none(), "True for Partial; with an op, only for that one.");
}

}  // namespace

Placement placement_from(py::handle object) {
  auto* type = reinterpret_cast<PyObject*>(Py_TYPE(object.ptr()));
  if (type == types.shard) return py::cast<const Shard&>(object);
  if (type == types.replicate) return Replicate();
  if (type == types.partial) return py::cast<const Partial&>(object);
  if (type == types.strided_shard) return py::cast<const StridedShard&>(object);
  return foreign_placement(object);
}

Placements placements_from(py::handle sequence) {
  Placements placements;
  if (PyList_Check(sequence.ptr()) == 0 && PyTuple_Check(sequence.ptr()) == 0) {
    if (!py::isinstance<py::sequence>(sequence)) throw_no_placement(sequence);
  }
  for (const auto item : sequence) placements.push_back(placement_from(item));
  return placements;
}

std::optional<Placements> optional_placements_from(py::handle sequence) {
  if (sequence.is_none()) return std::nullopt;
  return placements_from(sequence);
}

py::tuple tuple_of(const Placements& placements) {
  py::tuple result(placements.size());
  for (std::size_t i = 0; i < placements.size(); ++i) {
    result[i] =
        std::visit([](const auto& placement) { return py::cast(placement); }, placements[i]);
  }
  return result;
}

void bind_placements(py::module_& module) {
  const auto replicate =
      bind_placement<Replicate>(module, "Replicate",
                                "Every rank along the mesh dim holds the same whole data.")
          .def(py::init<>())
          .def("__repr__", [](const Replicate&) { return "Replicate()"; })
          .def(py::pickle([](const Replicate&) { return py::tuple(0); },
                          [](const py::tuple&) { return Replicate(); }));
  const auto shard =
      bind_placement<Shard>(module, "Shard",
                            "Rank i along the mesh dim holds chunk i of tensor dim `dim`.\n\n"
                            "Chunks are those of torch.chunk: 5 rows over 4 ranks are 2, 2, 1, 0. "
                            "A negative dim counts from the end.")
          .def(py::init<std::int64_t>(), py::arg("dim"))
          .def_readonly("dim", &Shard::dim, "The tensor dim that is cut.")
          .def_static(
              "local_shard_size_and_offset",
              [](std::int64_t length, std::int64_t count, std::int64_t rank) {
                const Extent extent = chunk_extent(length, count, rank);
                return py::make_tuple(extent.size, extent.begin);
              },
              py::arg("curr_local_size"), py::arg("num_chunks"), py::arg("rank"),
              "The size of chunk `rank` of `num_chunks`, and where it begins.")
          .def("__repr__", [](const Shard& self) { return concat("Shard(dim=", self.dim, ")"); })
          .def(py::pickle(
              [](const Shard& self) { return py::make_tuple(self.dim); },
              [](const py::tuple& state) { return Shard(state[0].cast<std::int64_t>()); }));
  const auto strided =
      bind_placement<StridedShard>(
          module, "_StridedShard",
          "Tensor dim `dim` is cut into `split_factor` pieces, and rank i along the mesh dim holds "
          "chunk i of every piece.")
          .def(py::init<std::int64_t, std::int64_t>(), py::arg("dim"), py::kw_only(),
               py::arg("split_factor"))
          .def_readonly("dim", &StridedShard::dim)
          .def_readonly("split_factor", &StridedShard::split_factor)
          .def("__repr__",
               [](const StridedShard& self) {
                 return concat("_StridedShard(dim=", self.dim, ", sf=", self.split_factor, ")");
               })
          .def(py::pickle(
              [](const StridedShard& self) { return py::make_tuple(self.dim, self.split_factor); },
              [](const py::tuple& state) {
                return StridedShard(state[0].cast<std::int64_t>(), state[1].cast<std::int64_t>());
              }));
  const auto partial =
      bind_placement<Partial>(module, "Partial",
                              "Every rank along the mesh dim holds a contribution of the whole "
                              "shape; the tensor is their reduction by `reduce_op`: sum, avg, min, "
                              "max, product, band, bor or bxor.")
          .def(py::init([](const std::string& op) { return Partial(reduce_op_named(op)); }),
               py::arg("reduce_op") = "sum")
          .def_property_readonly(
              "reduce_op", [](const Partial& self) { return to_string(self.op); },
              "How contributions are reduced.")
          .def("__repr__",
               [](const Partial& self) { return concat("Partial(", to_string(self.op), ")"); })
          .def(py::pickle([](const Partial& self) { return py::make_tuple(to_string(self.op)); },
                          [](const py::tuple& state) {
                            return Partial(parse_reduce_op(state[0].cast<std::string>()));
                          }));
  types = {replicate.ptr(), shard.ptr(), strided.ptr(), partial.ptr()};
}

}  // namespace tessera::python
