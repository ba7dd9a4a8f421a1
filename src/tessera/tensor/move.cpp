#include <algorithm>

#include <ATen/core/LegacyTypeDispatch.h>

#include "tessera/base/check.h"
#include "tessera/comm/recorder.h"
#include "tessera/comm/redistribute_local.h"
#include "tessera/tensor/conversion.h"
#include "tessera/tensor/dtensor_meta.h"
#include "tessera/tensor/history.h"

namespace tessera::detail {
namespace {

using torch::autograd::variable_list;

/// What a backward pass needs to know of the tensor that was moved.
struct Source {
  Source(const at::Tensor& tensor, const RedistributeOptions& options)
      : mesh(dtensor_meta(tensor)->mesh()),
        gradient(gradient_layout(dtensor_meta(tensor)->layout())),
        dtype(tensor.scalar_type()),
        sent_dtype(options.backward_dtype.value_or(dtype)) {}

  DeviceMesh mesh;
  Layout gradient;
  at::ScalarType dtype;
  at::ScalarType sent_dtype;
};

/// Whether the result of a move must remember what was moved; integers have no gradients.
bool is_recorded(const at::Tensor& tensor, const at::Tensor& result) {
  return needs_history(tensor) && torch::autograd::isDifferentiableType(result.scalar_type());
}

at::Tensor converted(const at::Tensor& tensor, at::ScalarType dtype) {
  return tensor.scalar_type() == dtype ? tensor : tensor.to(dtype);
}

struct MoveBackward : torch::autograd::Node {
  MoveBackward(Source its_source, bool is_async)
      : source(std::move(its_source)), async_op(is_async) {}

  variable_list apply(variable_list&& gradients) override {
    if (!gradients[0].defined() || !task_should_compute_output(0)) return variable_list(1);
    const CauseScope cause("backward of redistribute");
    const auto moved = move(converted(gradients[0], source.sent_dtype), source.mesh,
                            source.gradient, {.async_op = async_op});
    return {converted(moved, source.dtype)};
  }
  [[nodiscard]] std::string name() const override { return "tessera::redistribute"; }

  Source source;
  bool async_op;
};

/// Runs once the gradients of all results are there, and sends them all at once.
struct MoveAllBackward : torch::autograd::Node {
  variable_list apply(variable_list&& gradients) override {
    const CauseScope cause("backward of redistribute_all");
    std::vector<std::size_t> present;
    std::vector<at::Tensor> sent;
    std::vector<Destination> back;
    for (std::size_t i = 0; i < sources.size(); ++i) {
      if (!gradients[i].defined() || !task_should_compute_output(i)) continue;
      present.push_back(i);
      sent.push_back(converted(gradients[i], sources[i].sent_dtype));
      back.push_back({sources[i].mesh, sources[i].gradient});
    }
    const auto moved = move_all(sent, back, {.async_op = async_op});
    variable_list results(sources.size());
    for (std::size_t i = 0; i < present.size(); ++i) {
      results[present[i]] = converted(moved[i], sources[present[i]].dtype);
    }
    return results;
  }
  [[nodiscard]] std::string name() const override { return "tessera::redistribute_all"; }

  std::vector<Source> sources;
  bool async_op = false;
};

/// True when the tensor itself is the result.
bool stays(const at::Tensor& tensor, const DeviceMesh& mesh, const Layout& layout,
           const RedistributeOptions& options) {
  const auto& meta = *dtensor_meta(tensor);
  const bool casts = options.forward_dtype && *options.forward_dtype != tensor.scalar_type();
  return meta.layout() == layout && meta.mesh() == mesh && !casts && !options.backward_dtype;
}

at::Tensor sent_local(const at::Tensor& tensor, const RedistributeOptions& options) {
  bring_up_to_date(tensor);
  const at::Tensor& local = dtensor_meta(tensor)->local();
  return options.forward_dtype ? converted(local, *options.forward_dtype) : local;
}

/// Returns the DTensor of what arrived; `sent` is what went.
at::Tensor arrived(at::Tensor moved, const at::Tensor& sent, const DeviceMesh& mesh,
                   const Layout& layout) {
  if (!mesh.shape().contains(mesh.world().rank())) {
    moved = outside_local(sent);
  } else if (moved.is_same(sent)) {
    moved = without_history(moved);
  }
  return make_dtensor(std::move(moved), mesh, layout);
}

at::Tensor make_moved(const at::Tensor& tensor, const DeviceMesh& mesh, const Layout& layout,
                      const RedistributeOptions& options) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const at::Tensor local = sent_local(tensor, options);
  return arrived(redistribute_local(local, dtensor_meta(tensor)->layout(), layout, mesh.world(),
                                    {.async_op = options.async_op}),
                 local, mesh, layout);
}

/// Moves those of the tensors that `moving` numbers, and puts them in their places.
void make_all_moved(std::vector<at::Tensor>& tensors, std::span<const std::size_t> moving,
                    std::span<const Destination> to, const RedistributeOptions& options) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  std::vector<at::Tensor> locals;
  std::vector<LayoutChange> changes;
  for (const auto i : moving) {
    locals.push_back(sent_local(tensors[i], options));
    changes.push_back({dtensor_meta(tensors[i])->layout(), to[i].layout});
  }
  auto moved = redistribute_local_all(locals, changes, to[moving.front()].mesh.world(),
                                      {.async_op = options.async_op});
  for (std::size_t k = 0; k < moving.size(); ++k) {
    const auto& [mesh, layout] = to[moving[k]];
    tensors[moving[k]] = arrived(std::move(moved[k]), locals[k], mesh, layout);
  }
}

}  // namespace

at::Tensor move(const at::Tensor& tensor, const DeviceMesh& mesh, const Layout& layout,
                const RedistributeOptions& options) {
  if (stays(tensor, mesh, layout, options)) return tensor;
  at::Tensor result = make_moved(tensor, mesh, layout, options);
  if (is_recorded(tensor, result)) {
    record_history<MoveBackward>(result, tensor, Source(tensor, options), options.async_op);
  }
  return result;
}

std::vector<at::Tensor> move_all(const std::vector<at::Tensor>& tensors,
                                 std::span<const Destination> to,
                                 const RedistributeOptions& options) {
  std::vector<at::Tensor> results = tensors;
  std::vector<std::size_t> moving;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!stays(tensors[i], to[i].mesh, to[i].layout, options)) moving.push_back(i);
  }
  if (moving.empty()) return results;
  make_all_moved(results, moving, to, options);
  std::erase_if(moving, [&](std::size_t i) { return !is_recorded(tensors[i], results[i]); });
  if (moving.empty()) return results;
  auto node = c10::make_intrusive<MoveAllBackward>();
  node->async_op = options.async_op;
  for (const auto i : moving) {
    node->sources.emplace_back(tensors[i], options);
    node->add_next_edge(torch::autograd::impl::gradient_edge(tensors[i]));
    torch::autograd::set_history(results[i], node);
  }
  return results;
}

}  // namespace tessera::detail
