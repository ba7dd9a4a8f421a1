#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/base/check.h"
#include "tessera/nn/near_names.h"
#include "tessera/nn/path_pattern.h"
#include "tessera/python/bindings.h"
#include "tessera/python/spec_cast.h"
#include "tessera/sharded/agreement.h"
#include "tessera/sharded/budget_cuts.h"
#include "tessera/sharded/output_hooks.h"
#include "tessera/sharded/parameter_change.h"
#include "tessera/sharded/state.h"

namespace tessera::python {
namespace {

using Sizes = std::vector<std::int64_t>;
using sharded::detail::ParameterChange;

/// Lets all members of a group meet; see `Agreement`. `error` is what is wrong on this rank, if
/// anything is; `fields` are names and values that must be the same everywhere.
void meet(const std::string& function, const Group& group, const std::string& error,
          const std::vector<std::pair<std::string, std::string>>& fields) {
  sharded::detail::Agreement agreement(function, group);
  agreement.require_no_throw([&] { TESSERA_CHECK(error.empty(), error); });
  for (const auto& [name, value] : fields) agreement.same(name, value);
  agreement.meet();
}

/// The dims along which weights of these shapes and bytes per element are cut; -1 for those that are
/// not.
Sizes budget_dims(const std::vector<std::pair<Sizes, std::int64_t>>& weights,
                  std::int64_t other_bytes, std::int64_t ranks, std::int64_t bytes_per_rank,
                  std::int64_t copies) {
  std::vector<sharded::detail::WeightSize> sizes;
  for (const auto& [shape, bytes] : weights) sizes.push_back({shape, bytes});
  Sizes dims;
  for (const auto& cut : sharded::detail::budget_cuts(
           sizes, other_bytes, ranks, {.bytes_per_rank = bytes_per_rank, .copies = copies})) {
    dims.push_back(cut.dim);
  }
  return dims;
}

}  // namespace

void bind_shard_module(py::module_& module) {
  const auto without_gil = py::call_guard<py::gil_scoped_release>();
  py::class_<ParameterChange>(module, "ParameterChange")
      .def_readonly("path", &ParameterChange::path)
      .def_readonly("tensor", &ParameterChange::tensor)
      .def_readonly("mesh", &ParameterChange::mesh)
      .def_property_readonly("layout",
                             [](const ParameterChange& self) { return concat(self.layout); })
      .def("describe", [](const ParameterChange& self) { return sharded::detail::describe(self); })
      .def("apply", &sharded::detail::apply, without_gil);
  module.def("plan_change", &sharded::detail::plan_change);
  module.def("plan_replicated", &sharded::detail::plan_replicated);
  module.def("check_member", [](const std::string& function, const std::string& what,
                                std::int64_t member, const Group& group) {
    sharded::detail::check_member(function, what.c_str(), member, group);
  });
  module.def("meet", &meet, without_gil);
  module.def("check_output_spec", &sharded::detail::check_output_spec);
  module.def("reshard_output", &sharded::detail::resharded_output, without_gil);
  module.def("local_output", &sharded::detail::local_output, without_gil);
  module.def("check_pattern", [](const std::string& function, const std::string& pattern) {
    nn::detail::check_pattern(function.c_str(), pattern);
  });
  module.def("path_matches", [](const std::string& pattern, const std::string& path) {
    return nn::detail::matches(pattern, path);
  });
  module.def("near_names_text", &nn::detail::near_names_text);
  module.def("budget_dims", &budget_dims);
}

}  // namespace tessera::python
