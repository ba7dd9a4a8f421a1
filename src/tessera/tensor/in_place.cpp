#include "tessera/tensor/in_place.h"

#include <utility>

#include <c10/core/TensorImpl.h>
#include <torch/csrc/autograd/variable.h>

#include "tessera/base/check.h"
#include "tessera/tensor/conversion.h"
#include "tessera/tensor/dispatch.h"
#include "tessera/tensor/op_call.h"

namespace tessera {
namespace {

std::string describe(const at::Tensor& tensor) { return detail::describe_tensor(tensor); }

/// A tensor that takes part: whatever else refers to it must not need it to stay what it is.
void check_free(const char* function, const at::Tensor& tensor) {
  TESSERA_CHECK(tensor.defined(), function, ": an undefined tensor given");
  TESSERA_CHECK(tensor.is_leaf(), function, ": ", describe(tensor),
                " has history, but only leaf tensors can change in place; pass tensor.detach()");
  TESSERA_CHECK(!tensor.is_view() || torch::autograd::impl::hooks(tensor).empty(), function, ": ",
                describe(tensor), " is a view with hooks, which cannot stop being a view; pass a ",
                "clone(), or register the hooks afterwards");
}

void check_fits(const char* function, const at::Tensor& tensor, const at::Tensor& value) {
  TESSERA_CHECK(tensor.sizes() == value.sizes() && tensor.scalar_type() == value.scalar_type() &&
                    tensor.device().type() == value.device().type(),
                function, ": ", describe(tensor), " on ", tensor.device(), " cannot become ",
                describe(value), " on ", value.device(),
                "; sizes, dtype and device must be the same");
  TESSERA_CHECK(tensor.is_inference() == value.is_inference(), function,
                ": one tensor was made in inference mode and the other was not; make both alike");
}

/// A tensor that was made by reshaping another one is a view of it to libtorch, for as long as it
/// lives. It shares nothing with it any more.
void forget_base(const at::Tensor& tensor) {
  const bool requires_grad = tensor.requires_grad();
  at::Tensor gradient = tensor.grad();
  auto* impl = tensor.unsafeGetTensorImpl();
  impl->set_autograd_meta(nullptr);
  impl->set_version_counter(c10::VariableVersion(impl->version_counter().current_version()));
  tensor.set_requires_grad(requires_grad);
  if (gradient.defined()) tensor.mutable_grad() = std::move(gradient);
}

void replace(const at::Tensor& tensor, const at::Tensor& value) {
  auto* impl = tensor.unsafeGetTensorImpl();
  if (tensor.is_view()) forget_base(tensor);
  impl->shallow_copy_from(value.getIntrusivePtr());
  // Graphs that saved the tensor must not go on with what it has become.
  if (!tensor.is_inference()) impl->bump_version();
}

/// Gives the tensor another gradient; in place where possible, for those who hold the object.
void replace_gradient(const at::Tensor& tensor, const at::Tensor& gradient) {
  at::Tensor& present = tensor.mutable_grad();
  if (present.is_leaf()) {
    replace(present, gradient);
  } else {
    present = gradient;
  }
}

}  // namespace

void become(const at::Tensor& tensor, const at::Tensor& value) {
  constexpr const char* kName = "become";
  check_free(kName, tensor);
  check_free(kName, value);
  check_fits(kName, tensor, value);
  const bool has_gradient = tensor.grad().defined();
  TESSERA_CHECK(!has_gradient || value.grad().defined(), kName, ": ", describe(tensor),
                " has a gradient, and what it is to become has none; call ",
                "tensor.mutable_grad().reset() first, or distribute_in_place, which takes the ",
                "gradient along");
  if (tensor.is_same(value)) return;
  detail::register_dispatch();
  replace(tensor, value);
  if (has_gradient) replace_gradient(tensor, value.grad());
}

void distribute_in_place(const at::Tensor& tensor, const DeviceMesh& mesh,
                         const Placements& placements, const DistributeOptions& options) {
  check_free("distribute_in_place", tensor);
  const at::Tensor value = distribute_tensor(tensor.detach(), mesh, placements, options);
  if (is_dtensor(tensor)) return;
  if (const at::Tensor& gradient = tensor.grad(); gradient.defined()) {
    value.mutable_grad() = distribute_tensor(gradient.detach(), mesh, placements, options);
  }
  become(tensor, value);
}

void redistribute_in_place(const at::Tensor& tensor, const Placements& placements) {
  redistribute_in_place(tensor, mesh_of(tensor), placements);
}

void redistribute_in_place(const at::Tensor& tensor, const DeviceMesh& mesh,
                           const Placements& placements) {
  check_free("redistribute_in_place", tensor);
  const at::Tensor value = redistribute(tensor.detach(), mesh, placements);
  if (const at::Tensor& gradient = tensor.grad(); gradient.defined()) {
    const Layout layout = detail::gradient_layout(layout_of(value));
    value.mutable_grad() = redistribute(gradient.detach(), mesh, layout.placements());
  }
  become(tensor, value);
}

}  // namespace tessera
