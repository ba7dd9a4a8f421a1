#include <torch/csrc/autograd/python_variable.h>

#include "tessera/python/bindings.h"
#include "tessera/tensor/dtensor.h"

namespace tessera::python {
namespace {

bool is_dtensor_object(PyObject* object) {
  return THPVariable_Check(object) && is_dtensor(THPVariable_Unpack(object));
}

PyObject* py_is_dtensor(PyObject* /*module*/, PyObject* object) {
  return PyBool_FromLong(is_dtensor_object(object) ? 1 : 0);
}

/// What `torch.Tensor` gets for every name that only DTensors have. On a DTensor it is a method (or
/// the value of a property); on any other tensor it does not exist, so that `hasattr` says so, and
/// the error says what to do.
struct TensorAttribute {
  PyObject ob_base;
  PyObject* function;
  PyObject* name;
  bool is_property;
};

PyObject* attribute_get(PyObject* self, PyObject* object, PyObject* /*owner*/) {
  auto* attribute = reinterpret_cast<TensorAttribute*>(self);
  if (object == nullptr) {
    PyObject* result = attribute->is_property ? self : attribute->function;
    Py_INCREF(result);
    return result;
  }
  if (is_dtensor_object(object)) {
    if (attribute->is_property) return PyObject_CallOneArg(attribute->function, object);
    return PyMethod_New(attribute->function, object);
  }
  PyErr_Format(PyExc_AttributeError,
               "'%U' is of DTensors, and this is a plain tensor (%s); make a DTensor with "
               "tessera.distribute_tensor or tessera.DTensor.from_local",
               attribute->name, Py_TYPE(object)->tp_name);
  return nullptr;
}

int attribute_set(PyObject* self, PyObject* /*object*/, PyObject* /*value*/) {
  PyErr_Format(PyExc_AttributeError,
               "'%U' of a tensor cannot be set; redistribute(...) returns a "
               "DTensor that is placed otherwise",
               reinterpret_cast<TensorAttribute*>(self)->name);
  return -1;
}

void attribute_dealloc(PyObject* self) {
  auto* attribute = reinterpret_cast<TensorAttribute*>(self);
  Py_XDECREF(attribute->function);
  Py_XDECREF(attribute->name);
  auto* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(reinterpret_cast<PyObject*>(type));
}

PyObject* attribute_doc(PyObject* self, void* /*closure*/) {
  return PyObject_GetAttrString(reinterpret_cast<TensorAttribute*>(self)->function, "__doc__");
}

PyTypeObject* attribute_type() {
  static PyGetSetDef properties[] = {{"__doc__", &attribute_doc, nullptr, nullptr, nullptr},
                                     {nullptr, nullptr, nullptr, nullptr, nullptr}};
  static PyType_Slot slots[] = {
      {Py_tp_descr_get, reinterpret_cast<void*>(&attribute_get)},
      {Py_tp_descr_set, reinterpret_cast<void*>(&attribute_set)},
      {Py_tp_dealloc, reinterpret_cast<void*>(&attribute_dealloc)},
      {Py_tp_getset, properties},
      {0, nullptr},
  };
  static PyType_Spec spec = {"tessera._C.TensorAttribute", sizeof(TensorAttribute), 0,
                             Py_TPFLAGS_DEFAULT, slots};
  static auto* type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  return type;
}

py::object make_attribute(const py::str& name, const py::object& function, bool is_property) {
  auto* attribute = PyObject_New(TensorAttribute, attribute_type());
  if (attribute == nullptr) throw py::error_already_set();
  attribute->function = function.inc_ref().ptr();
  attribute->name = name.inc_ref().ptr();
  attribute->is_property = is_property;
  return py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(attribute));
}

}  // namespace

void bind_tensor_attributes(py::module_& module) {
  // By hand, as every `isinstance(x, DTensor)` comes here.
  static PyMethodDef is_dtensor_method = {"is_dtensor", &py_is_dtensor, METH_O,
                                          "True for a DTensor, False for any other object."};
  module.attr("is_dtensor") = py::reinterpret_steal<py::object>(
      PyCFunction_NewEx(&is_dtensor_method, nullptr, module.attr("__name__").ptr()));
  module.def("tensor_method", [](const py::str& name, const py::object& function) {
    return make_attribute(name, function, /*is_property=*/false);
  });
  module.def("tensor_property", [](const py::str& name, const py::object& function) {
    return make_attribute(name, function, /*is_property=*/true);
  });
}

}  // namespace tessera::python
