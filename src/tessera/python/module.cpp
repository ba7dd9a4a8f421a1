#include "tessera/comm/waiting.h"
#include "tessera/python/bindings.h"

namespace tessera::python {
namespace {

/// Lets go of Python's lock if the calling thread holds it: ranks that are threads of one process
/// wait for each other, and who is waited for may need it.
void* release_gil() { return PyGILState_Check() != 0 ? PyEval_SaveThread() : nullptr; }

void take_gil_back(void* state) { PyEval_RestoreThread(static_cast<PyThreadState*>(state)); }

constexpr detail::WaitingHooks kGilHooks{&release_gil, &take_gil_back};

}  // namespace
}  // namespace tessera::python

PYBIND11_MODULE(_C, module) {
  using namespace tessera::python;
  module.doc() = "The C++ core of tessera; use the package `tessera`.";
  tessera::detail::set_waiting_hooks(&kGilHooks);
  bind_errors(module);
  bind_placements(module);
  bind_worlds(module);
  bind_meshes(module);
  bind_tensor_attributes(module);
  bind_tensors(module);
  bind_guards(module);
  bind_factories(module);
  bind_local_map(module);
  bind_nn(module);
  bind_collectives(module);
  bind_traffic(module);
  bind_sharded(module);
  bind_shard_module(module);
}
