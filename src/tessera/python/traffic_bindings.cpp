#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/concat.h"
#include "tessera/comm/traffic.h"
#include "tessera/python/bindings.h"

namespace tessera::python {
namespace {

/// A `CommDebugMode` that Python enters and leaves.
class Recording {
 public:
  void enter() {
    if (depth_++ == 0) scope_.reset(new CommDebugMode::Scope(traffic_.record()));
  }
  void exit() {
    if (depth_ > 0 && --depth_ == 0) scope_.reset();
  }
  [[nodiscard]] CommDebugMode& traffic() { return traffic_; }

 private:
  CommDebugMode traffic_;
  std::unique_ptr<CommDebugMode::Scope> scope_;
  int depth_ = 0;
};

}  // namespace

void bind_traffic(py::module_& module) {
  py::class_<CommRecord>(module, "CommRecord", "One communication of one rank.")
      .def_readonly("name", &CommRecord::name, "The operation.")
      .def_readonly("group", &CommRecord::group, "The name of the group.")
      .def_readonly("cause", &CommRecord::cause, "What it was for; empty if asked for directly.")
      .def_readonly("rank", &CommRecord::rank, "Whose record it is.")
      .def_readonly("sent_bytes", &CommRecord::sent_bytes, "To other ranks.")
      .def_readonly("received_bytes", &CommRecord::received_bytes, "From other ranks.")
      .def_property_readonly(
          "seconds",
          [](const CommRecord& self) {
            return std::chrono::duration<double>(self.duration).count();
          },
          "How long it took.")
      .def("__repr__", [](const CommRecord& self) {
        return concat("CommRecord(", self.name, " on ", self.group, ", rank ", self.rank, ": ",
                      self.received_bytes, " B in, ", self.sent_bytes, " B out",
                      self.cause.empty() ? "" : ", for ", self.cause, ")");
      });
  py::class_<Recording>(module, "Recording")
      .def(py::init<>())
      .def("enter", &Recording::enter)
      .def("exit", &Recording::exit)
      .def("clear", [](Recording& self) { self.traffic().clear(); })
      .def("records", [](Recording& self) { return self.traffic().records(); })
      .def("counts", [](Recording& self) { return self.traffic().counts(); })
      .def("total_count", [](Recording& self) { return self.traffic().total_count(); })
      .def("received_bytes", [](Recording& self) { return self.traffic().received_bytes(); })
      .def("sent_bytes", [](Recording& self) { return self.traffic().sent_bytes(); })
      .def(
          "gathered",
          [](Recording& self, const Group& group) { return self.traffic().gathered(group); },
          py::call_guard<py::gil_scoped_release>());
  using Records = std::vector<CommRecord>;
  module.def("traffic_table", [](const Records& records) { return CommDebugMode::table(records); });
  module.def("traffic_json", [](const Records& records) { return CommDebugMode::json(records); });
  module.def("chrome_trace", &chrome_trace);
}

}  // namespace tessera::python
