#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "tessera/base/check.h"
#include "tessera/comm/c10d.h"
#include "tessera/comm/c10d/engines.h"
#include "tessera/comm/current_world.h"
#include "tessera/comm/launch_process.h"
#include "tessera/comm/log.h"
#include "tessera/comm/world.h"
#include "tessera/comm/world_state.h"
#include "tessera/python/bindings.h"
#include "tessera/tensor/random.h"

namespace tessera::python {
namespace {

WorldOptions options_with(std::optional<double> seconds) {
  WorldOptions options;
  if (!seconds) return options;
  TESSERA_CHECK(*seconds > 0, "timeout=", *seconds, " given; allowed are seconds above 0");
  options.timeout = std::chrono::milliseconds(static_cast<std::int64_t>(*seconds * 1e3));
  return options;
}

/// What the ranks of one `run_ranks` return, or the exception of the first one that raised.
/// Guarded by Python's lock.
struct RankResults {
  std::vector<py::object> values;
  std::int64_t failed_rank = -1;
  py::object exception = py::none();

  void run(const py::object& fn, std::int64_t rank) {
    try {
      values[static_cast<std::size_t>(rank)] = fn(rank);
    } catch (py::error_already_set& error) {
      if (failed_rank < 0) {
        failed_rank = rank;
        exception = error.value();
      }
      // The hub only needs words; Python's own exception is raised in the end.
      throw Error(error.what());
    }
  }
};

py::tuple run_ranks_of(std::int64_t ranks, const py::object& fn, std::optional<double> timeout) {
  RankResults results;
  const WorldOptions options = options_with(timeout);
  TESSERA_CHECK(ranks >= 1, "run_ranks: ", ranks, " ranks given; there must be at least 1");
  results.values.resize(static_cast<std::size_t>(ranks), py::none());
  {
    const py::gil_scoped_release no_gil;
    try {
      run_ranks(
          ranks,
          [&](World& world) {
            const py::gil_scoped_acquire gil;
            results.run(fn, world.rank());
          },
          options);
    } catch (...) {
      if (results.failed_rank < 0) throw;
    }
  }
  return py::make_tuple(std::move(results.values), results.failed_rank, results.exception);
}

/// The world that this process is a rank of, if it is one.
std::shared_ptr<detail::WorldState> process_world;

void enter(std::shared_ptr<detail::WorldState> world) {
  detail::set_log_rank(world->rank());
  detail::set_process_world(world);
  process_world = std::move(world);
}

void start_world(const std::optional<std::string>& engine, std::optional<double> timeout) {
  detail::LaunchFlags flags;
  if (engine) {
    TESSERA_CHECK(*engine == "gloo" || *engine == "mpi", "init: engine \"", *engine,
                  "\" given; allowed are \"gloo\", \"mpi\" and \"torch\" (threads: use run_ranks)");
    flags.engine = *engine == "gloo" ? detail::EngineKind::gloo : detail::EngineKind::mpi;
  }
  auto decision = detail::decide_launch(detail::environment_variables(), flags, detail::has_mpi());
  // Without a launcher there is one rank, which needs no threads.
  if (decision.engine == detail::EngineKind::threads) decision.engine = detail::EngineKind::gloo;
  WorldOptions options = options_with(timeout);
  if (!timeout && decision.timeout) options.timeout = *decision.timeout;
  const py::gil_scoped_release no_gil;
  enter(detail::make_process_world(decision, options));
}

void adopt_world(const c10::intrusive_ptr<c10d::ProcessGroup>& all, py::object make_group,
                 std::optional<double> timeout) {
  // Copies of the function are made and dropped without Python's lock, the object is not.
  const std::shared_ptr<py::object> maker(new py::object(std::move(make_group)),
                                          [](py::object* object) {
                                            const py::gil_scoped_acquire gil;
                                            delete object;
                                          });
  const auto make = [maker](const std::vector<std::int64_t>& ranks) {
    const py::gil_scoped_acquire gil;
    return (*maker)(ranks).cast<c10::intrusive_ptr<c10d::ProcessGroup>>();
  };
  const WorldOptions options = options_with(timeout);
  const py::gil_scoped_release no_gil;
  const World world = adopt(all, {}, options, make);
  enter(world.state().shared_from_this());
}

void leave_world() {
  const py::gil_scoped_release no_gil;
  detail::set_process_world(nullptr);
  process_world.reset();
}

}  // namespace

void bind_worlds(py::module_& module) {
  module.def("run_ranks", &run_ranks_of, py::arg("ranks"), py::arg("fn"), py::arg("timeout"));
  module.def("start_world", &start_world, py::arg("engine"), py::arg("timeout"));
  module.def("adopt_world", &adopt_world, py::arg("group"), py::arg("make_group"),
             py::arg("timeout"));
  module.def("leave_world", &leave_world);
  module.def("fail_world", [](const std::string& what) {
    if (process_world != nullptr) process_world->fail(what);
  });
  module.def("is_running", [] { return World::is_running(); });
  module.def("is_process_world", [] {
    return process_world != nullptr && World::is_running() &&
           &World::current().state() == process_world.get();
  });
  module.def("world_rank", [] { return World::current().rank(); });
  module.def("world_size", [] { return World::current().size(); });
  module.def("world_engine", [] { return World::current().engine(); });
  module.def("has_mpi", &detail::has_mpi);
  module.def("has_gloo", &detail::has_gloo);
  module.def("manual_seed", &manual_seed, py::arg("seed"));
}

}  // namespace tessera::python
