#include <optional>
#include <utility>
#include <vector>

#include <torch/csrc/autograd/python_variable.h>

#include "tessera/python/bindings.h"
#include "tessera/python/placement_cast.h"
#include "tessera/tensor/local_map.h"

namespace tessera::python {
namespace {

/// What torch.utils._pytree knows, looked up once.
struct PyTree {
  py::object flatten;
  py::object unflatten;
  /// The container types, as keys.
  py::dict nodes;

  static const PyTree& get() {
    // Never freed: Python may be gone when statics end.
    static const auto* tree = [] {
      const auto module = py::module_::import("torch.utils._pytree");
      return new PyTree{module.attr("tree_flatten"), module.attr("tree_unflatten"),
                        module.attr("SUPPORTED_NODES")};
    }();
    return *tree;
  }

  /// True for objects that are containers of leaves.
  [[nodiscard]] bool is_node(PyObject* object) const {
    if (THPVariable_Check(object)) return false;
    return PyTuple_Check(object) != 0 || PyList_Check(object) != 0 ||
           PyDict_Contains(nodes.ptr(), reinterpret_cast<PyObject*>(Py_TYPE(object))) == 1;
  }
};

LeafKind kind_of(PyObject* object) {
  if (object == Py_None) return LeafKind::none;
  if (PyBool_Check(object)) return LeafKind::boolean;
  if (PyLong_Check(object) || PyFloat_Check(object) || PyComplex_Check(object)) {
    return LeafKind::number;
  }
  return PyUnicode_Check(object) ? LeafKind::string : LeafKind::other;
}

/// Leaves of a Python tree, with the tensors among them held as such while they are replaced.
class Leaves {
 public:
  explicit Leaves(const py::handle& objects) {
    const auto count = static_cast<std::size_t>(PySequence_Fast_GET_SIZE(objects.ptr()));
    tensors_.resize(count);
    for (std::size_t i = 0; i < count; ++i) {
      PyObject* object = PySequence_Fast_GET_ITEM(objects.ptr(), static_cast<Py_ssize_t>(i));
      if (THPVariable_Check(object)) {
        tensors_[i] = THPVariable_Unpack(object);
        mapped_.push_back({LeafKind::tensor, &tensors_[i]});
      } else {
        mapped_.push_back({kind_of(object), nullptr});
      }
    }
  }

  [[nodiscard]] const detail::MappedLeaves& mapped() const { return mapped_; }

  /// Leaf i as a Python object; `original` where it is no tensor or was not replaced.
  [[nodiscard]] py::object at(std::size_t i, PyObject* original) const {
    if (mapped_[i].kind != LeafKind::tensor || THPVariable_Unpack(original).is_same(tensors_[i])) {
      return py::reinterpret_borrow<py::object>(original);
    }
    return py::reinterpret_steal<py::object>(THPVariable_Wrap(tensors_[i]));
  }

 private:
  c10::SmallVector<at::Tensor, 8> tensors_;
  detail::MappedLeaves mapped_;
};

/// A function that is called with local parts; see tessera/experimental.py.
class LocalMapped {
 public:
  LocalMapped(py::object fn, LocalMapOptions options)
      : fn_(std::move(fn)), options_(std::move(options)) {}

  py::object call(const py::args& args, const py::kwargs& kwargs) const {
    const auto& tree = PyTree::get();
    for (const auto argument : args) {
      if (tree.is_node(argument.ptr())) return call_with_trees(args, kwargs);
    }
    const Leaves leaves(args);
    const auto call = begin(leaves);
    py::tuple locals(args.size());
    for (std::size_t i = 0; i < args.size(); ++i) {
      locals[i] = leaves.at(i, PyTuple_GET_ITEM(args.ptr(), static_cast<Py_ssize_t>(i)));
    }
    return finish(call, fn_(*locals, **kwargs));
  }

  [[nodiscard]] const py::object& function() const { return fn_; }

 private:
  [[nodiscard]] detail::LocalMapCall begin(const Leaves& leaves) const {
    const py::gil_scoped_release no_gil;
    return detail::LocalMapCall(options_, leaves.mapped());
  }

  py::object call_with_trees(const py::args& args, const py::kwargs& kwargs) const {
    const auto& tree = PyTree::get();
    const py::tuple flat = tree.flatten(py::tuple(args));
    const py::list objects = flat[0];
    const Leaves leaves(objects);
    const auto call = begin(leaves);
    const py::tuple locals = tree.unflatten(replaced(leaves, objects), flat[1]);
    return finish(call, fn_(*locals, **kwargs));
  }

  [[nodiscard]] static py::list replaced(const Leaves& leaves, const py::list& objects) {
    py::list result(objects.size());
    for (std::size_t i = 0; i < objects.size(); ++i) {
      result[i] = leaves.at(i, PyList_GET_ITEM(objects.ptr(), static_cast<Py_ssize_t>(i)));
    }
    return result;
  }

  [[nodiscard]] static py::object finish(const detail::LocalMapCall& call, py::object result) {
    const auto& tree = PyTree::get();
    if (!tree.is_node(result.ptr())) {
      const py::tuple objects = py::make_tuple(result);
      const Leaves leaves(objects);
      wrap(call, leaves);
      return leaves.at(0, result.ptr());
    }
    const py::tuple flat = tree.flatten(result);
    const py::list objects = flat[0];
    const Leaves leaves(objects);
    wrap(call, leaves);
    return tree.unflatten(replaced(leaves, objects), flat[1]);
  }

  static void wrap(const detail::LocalMapCall& call, const Leaves& leaves) {
    const py::gil_scoped_release no_gil;
    call.wrap(leaves.mapped());
  }

  py::object fn_;
  LocalMapOptions options_;
};

std::vector<LeafPlacements> entries_from(py::handle entries) {
  std::vector<LeafPlacements> result;
  if (entries.is_none()) return result;
  for (const auto entry : entries) {
    if (entry.is_none()) {
      result.emplace_back(std::nullopt);
    } else {
      result.emplace_back(placements_from(entry));
    }
  }
  return result;
}

std::vector<LeafShape> shapes_from(py::handle shapes) {
  std::vector<LeafShape> result;
  if (shapes.is_none()) return result;
  for (const auto shape : shapes) {
    if (shape.is_none()) {
      result.emplace_back(std::nullopt);
    } else {
      result.emplace_back(shape.cast<std::vector<std::int64_t>>());
    }
  }
  return result;
}

LocalMapped make_local_mapped(py::object fn, py::handle out, py::handle in, py::handle in_grad,
                              const DeviceMesh* mesh, bool redistribute_inputs, py::handle shapes,
                              bool check_outputs) {
  LocalMapOptions options;
  options.out_placements = entries_from(out);
  options.in_placements = entries_from(in);
  options.in_grad_placements = entries_from(in_grad);
  if (mesh != nullptr) options.mesh = *mesh;
  options.redistribute_inputs = redistribute_inputs;
  options.out_shapes = shapes_from(shapes);
  options.check_outputs = check_outputs;
  return {std::move(fn), std::move(options)};
}

}  // namespace

void bind_local_map(py::module_& module) {
  py::class_<LocalMapped>(module, "LocalMapped", py::dynamic_attr(),
                          "A function of local tensors that is called with DTensors.")
      .def(py::init(&make_local_mapped))
      .def("__call__", &LocalMapped::call)
      .def_property_readonly("__wrapped__", &LocalMapped::function);
}

}  // namespace tessera::python
