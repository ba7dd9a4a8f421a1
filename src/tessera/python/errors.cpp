#include <string>
#include <string_view>

#include "tessera/base/error.h"
#include "tessera/comm/comm_error.h"
#include "tessera/python/bindings.h"

namespace tessera::python {
namespace {

/// The class of that name in tessera/errors.py.
py::object error_class(const char* name) {
  return py::module_::import("tessera.errors").attr(name);
}

/// The message as it would be written in Python.
std::string in_python(std::string text) {
  constexpr std::string_view kNothing = "std::nullopt";
  for (auto at = text.find(kNothing); at != std::string::npos; at = text.find(kNothing, at)) {
    text.replace(at, kNothing.size(), "None");
  }
  return text;
}

void raise_comm_error(const CommError& error) {
  py::object value = error_class("CommError")(error.what());
  value.attr("rank") = error.rank();
  value.attr("group") = error.group();
  value.attr("operation") = error.operation();
  value.attr("elapsed") = std::chrono::duration<double>(error.elapsed()).count();
  PyErr_SetObject(py::type::of(value).ptr(), value.ptr());
}

void translate(std::exception_ptr error) {
  try {
    if (error) std::rethrow_exception(error);
  } catch (const CommError& known) {
    raise_comm_error(known);
  } catch (const InvalidArgument& known) {
    PyErr_SetString(error_class("InvalidArgument").ptr(), in_python(known.what()).c_str());
  } catch (const InternalError& known) {
    PyErr_SetString(error_class("InternalError").ptr(), known.what());
  } catch (const Error& known) {
    PyErr_SetString(error_class("Error").ptr(), known.what());
  }
}

}  // namespace

void bind_errors(py::module_& /*module*/) { py::register_local_exception_translator(&translate); }

}  // namespace tessera::python
