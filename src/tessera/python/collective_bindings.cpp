#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tessera/comm/collectives.h"
#include "tessera/python/bindings.h"

namespace tessera::python {
namespace {

using Sizes = std::vector<std::int64_t>;
using Tensors = std::vector<at::Tensor>;
using Pairs = std::vector<std::pair<std::int64_t, std::int64_t>>;

}  // namespace

// The functions that users see are in tessera/functional_collectives.py. Every one lets go of
// Python's lock: other threads of the process may be the ranks that it waits for.
void bind_collectives(py::module_& module) {
  const auto no_gil = py::call_guard<py::gil_scoped_release>();
  module.def(
      "all_reduce",
      [](const at::Tensor& x, const std::string& op, const Group& group, bool async_op) {
        return all_reduce(x, parse_reduce_op(op), group, {.async_op = async_op});
      },
      no_gil);
  module.def(
      "all_reduce_coalesced",
      [](const Tensors& xs, const std::string& op, const Group& group, bool async_op) {
        return all_reduce(xs, parse_reduce_op(op), group, {.async_op = async_op});
      },
      no_gil);
  module.def(
      "all_gather",
      [](const at::Tensor& x, std::int64_t dim, const Group& group, bool async_op, Sizes sizes) {
        return all_gather(x, dim, group, {.async_op = async_op, .sizes = std::move(sizes)});
      },
      no_gil);
  module.def(
      "all_gather_coalesced",
      [](const Tensors& xs, std::int64_t dim, const Group& group, bool async_op) {
        return all_gather(xs, dim, group, {.async_op = async_op});
      },
      no_gil);
  module.def(
      "reduce_scatter",
      [](const at::Tensor& x, std::int64_t dim, const std::string& op, const Group& group,
         bool async_op, Sizes sizes) {
        return reduce_scatter(x, dim, parse_reduce_op(op), group,
                              {.async_op = async_op, .sizes = std::move(sizes)});
      },
      no_gil);
  module.def(
      "reduce_scatter_coalesced",
      [](const Tensors& xs, std::int64_t dim, const std::string& op, const Group& group,
         bool async_op) {
        return reduce_scatter(xs, dim, parse_reduce_op(op), group, {.async_op = async_op});
      },
      no_gil);
  module.def(
      "all_to_all",
      [](const at::Tensor& x, const Sizes& receive, const Sizes& send, const Group& group,
         bool async_op) { return all_to_all(x, receive, send, group, {.async_op = async_op}); },
      no_gil);
  module.def(
      "broadcast",
      [](const at::Tensor& x, std::int64_t root, const Group& group, bool async_op) {
        return broadcast(x, root, group, {.async_op = async_op});
      },
      no_gil);
  module.def(
      "scatter",
      [](const at::Tensor& x, std::int64_t dim, std::int64_t root, const Group& group) {
        return scatter(x, dim, root, group);
      },
      no_gil);
  module.def(
      "gather",
      [](const at::Tensor& x, std::int64_t dim, std::int64_t root, const Group& group) {
        return gather(x, dim, root, group);
      },
      no_gil);
  module.def(
      "permute",
      [](const at::Tensor& x, const Pairs& pairs, const Group& group, bool async_op) {
        return permute(x, pairs, group, {.async_op = async_op});
      },
      no_gil);
  module.def(
      "send",
      [](const at::Tensor& x, std::int64_t destination, const Group& group, std::int64_t tag) {
        send(x, destination, group, tag);
      },
      no_gil);
  module.def(
      "recv",
      [](const at::Tensor& like, std::int64_t source, const Group& group, std::int64_t tag) {
        return recv(like, source, group, tag);
      },
      no_gil);
  module.def(
      "barrier", [](const Group& group) { barrier(group); }, no_gil);
  module.def(
      "wait", [](const at::Tensor& x) { return wait(x); }, no_gil);
  module.def("is_pending", [](const at::Tensor& x) { return is_pending(x); });
}

}  // namespace tessera::python
