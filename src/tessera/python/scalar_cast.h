#pragma once

#include <complex>
#include <cstdint>
#include <optional>

#include <pybind11/complex.h>

#include "tessera/python/bindings.h"

namespace tessera::python {

/// A Python number; torch's own caster only goes the other way.
inline at::Scalar scalar_from(py::handle number) {
  if (PyBool_Check(number.ptr())) return number.cast<bool>();
  if (PyLong_Check(number.ptr())) return number.cast<std::int64_t>();
  if (PyComplex_Check(number.ptr())) {
    const auto value = number.cast<std::complex<double>>();
    return c10::complex<double>(value.real(), value.imag());
  }
  return number.cast<double>();
}

/// The options of a new tensor.
inline at::TensorOptions options_of(std::optional<at::ScalarType> dtype, bool requires_grad) {
  auto options = at::TensorOptions().requires_grad(requires_grad);
  if (dtype) options = options.dtype(*dtype);
  return options;
}

}  // namespace tessera::python
