#include "tessera/nn/loss_parallel.h"
#include "tessera/python/bindings.h"
#include "tessera/tensor/fallback_log.h"
#include "tessera/tensor/implicit_replication.h"
#include "tessera/tensor/strict_mode.h"

namespace tessera::python {

// What holds for the calling rank while such an object is alive; the context managers that users see
// are in tessera/experimental.py and tessera/parallel.py.
void bind_guards(py::module_& module) {
  py::class_<StrictGuard>(module, "StrictGuard").def(py::init<bool>(), py::arg("enabled"));
  py::class_<ImplicitReplication>(module, "ImplicitReplication").def(py::init<>());
  py::class_<nn::LossParallel>(module, "LossParallel").def(py::init<>());
  py::class_<detail::FallbackLog>(module, "FallbackLog")
      .def(py::init<>())
      .def("ops", &detail::FallbackLog::ops);
  module.def("is_strict", [] { return StrictGuard::is_enabled(); });
}

}  // namespace tessera::python
