#pragma once

#include <memory>

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/TensorImpl.h>

#include "tessera/comm/transport.h"

namespace c10 {
class OperatorHandle;
struct OperatorName;
}  // namespace c10

namespace tessera::detail {

class WorldState;

/// What makes a tensor of ours more than a plain one: the BackendMeta of a `c10::TensorImpl` on the
/// dispatch key PrivateUse2, which has sizes and a dtype but no storage.
///
/// Every aten op that such a tensor enters comes to one boxed kernel (Autograd above it works as
/// usual), which settles the pending arguments and then either calls the op again on what are plain
/// tensors now or, when other kinds are among the arguments, leaves it to the handler of those.
class WrappedMeta : public c10::BackendMeta {
 public:
  enum class Kind {
    /// The result of a communication under way; a plain tensor as soon as it is used.
    pending,
    /// Part of a distributed tensor; of the tensor layer.
    distributed,
  };

  [[nodiscard]] virtual Kind kind() const = 0;
};

/// Returns the meta of a wrapped tensor; null for plain and undefined ones.
[[nodiscard]] WrappedMeta* wrapped_meta(const at::Tensor& tensor);

/// Returns a wrapped tensor with the sizes, strides, dtype and device of `like`. `message` is what
/// asking for its memory throws.
[[nodiscard]] at::Tensor make_wrapped(const at::Tensor& like, c10::intrusive_ptr<WrappedMeta> meta,
                                      const char* message);

/// Computes an op that has wrapped arguments, none of them pending; gets and leaves them on the
/// stack as kernels do.
using WrappedHandler = void (*)(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                                torch::jit::Stack* stack);

/// Makes `handler` the one for arguments of other kinds than pending. Called once, while the
/// program is loaded.
void set_wrapped_handler(WrappedHandler handler);

/// Gives up the boxed kernel of an op, for one that a higher layer registers in its stead and that
/// calls `run_wrapped` for all calls that it does not do itself. While the program is loaded, or
/// before wrapped tensors are used.
void release_op(const c10::OperatorName& name);

/// The boxed kernel itself.
void run_wrapped(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

/// Returns a tensor that becomes `result` when it is first used, after waiting for `pending`. Until
/// then `result` must not be touched. Dropping it waits too, unless an exception is on its way or another
/// thread of the rank communicates. While a thread waits no other one of the world's rank may communicate.
[[nodiscard]] at::Tensor make_pending_tensor(const at::Tensor& result, PendingPtr pending,
                                             std::weak_ptr<WorldState> world);

[[nodiscard]] bool is_pending_tensor(const at::Tensor& tensor);

/// Waits for a pending tensor, which is a plain one afterwards; does nothing to others. Throws what
/// the communication did, each time.
void settle(const at::Tensor& tensor);

}  // namespace tessera::detail
