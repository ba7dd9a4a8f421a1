#include "tessera/comm/pending_tensor.h"

#include <atomic>
#include <exception>
#include <optional>
#include <unordered_map>
#include <utility>

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "tessera/base/check.h"
#include "tessera/comm/world_state.h"

namespace tessera::detail {
namespace {

constexpr auto kKey = c10::DispatchKey::PrivateUse2;
constexpr auto kAutogradKey = c10::DispatchKey::AutogradPrivateUse2;
constexpr auto kBackendBit = c10::BackendComponent::PrivateUse2Bit;

constexpr const char* kNotWaited =
    "This tensor is the result of a communication that was not waited for, so it has no memory "
    "yet. Use it in an operation first, or pass it to tessera::wait.";

std::atomic<WrappedHandler> wrapped_handler = nullptr;

class PendingMeta final : public WrappedMeta {
 public:
  PendingMeta(at::Tensor result, PendingPtr pending, std::weak_ptr<WorldState> world)
      : result_(std::move(result)), pending_(std::move(pending)), world_(std::move(world)) {}

  ~PendingMeta() override {
    // A rank that is on its way out of a failed function must not wait for others, who may be
    // waiting for it: they learn of the failure instead. The operation keeps its memory alive.
    if (std::uncaught_exceptions() > exceptions_at_birth_) return;
    // Others may still read this rank's memory, or wait for its part.
    try {
      wait();
    } catch (...) {  // NOLINT(bugprone-empty-catch): nobody is left to be told.
    }
  }

  PendingMeta(const PendingMeta&) = delete;
  PendingMeta& operator=(const PendingMeta&) = delete;

  [[nodiscard]] Kind kind() const override { return Kind::pending; }

  const at::Tensor& wait() {
    if (pending_ == nullptr) return result_;
    // It may outlive its world.
    const auto world = world_.lock();
    std::optional<SoleUse> use;
    if (world != nullptr) use.emplace(*world, "wait");
    pending_->wait();
    pending_ = nullptr;
    return result_;
  }

 private:
  at::Tensor result_;
  PendingPtr pending_;
  std::weak_ptr<WorldState> world_;
  int exceptions_at_birth_ = std::uncaught_exceptions();
};

/// Calls `visit` for every tensor among the arguments of an op, in lists too.
template <typename Visit>
void visit_tensors(const c10::OperatorHandle& op, const torch::jit::Stack& stack,
                   const Visit& visit) {
  const std::size_t count = op.schema().arguments().size();
  for (std::size_t i = stack.size() - count; i < stack.size(); ++i) {
    const c10::IValue& value = stack[i];
    if (value.isTensor()) {
      visit(value.toTensor());
    } else if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector()) visit(tensor);
    } else if (value.isOptionalTensorList()) {
      for (const auto& tensor : value.toOptionalTensorVector()) {
        if (tensor.has_value()) visit(*tensor);
      }
    }
  }
}

void run_on_settled(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                    torch::jit::Stack* stack) {
  bool all_plain = true;
  visit_tensors(op, *stack, [&](const at::Tensor& tensor) {
    settle(tensor);
    all_plain = all_plain && wrapped_meta(tensor) == nullptr;
  });
  if (all_plain) {
    // Whatever autograd does for this call was done above: thread-local state says so.
    op.callBoxed(stack);
    return;
  }
  const WrappedHandler handler = wrapped_handler;
  TESSERA_INTERNAL_CHECK(handler != nullptr, "nothing handles the wrapped arguments of ",
                         op.operator_name());
  handler(op, keys, stack);
}

/// True for ops whose own kernel would win over the fallback of a backend.
bool has_explicit_composite(const c10::OperatorHandle& op) {
  return op.hasSchema() &&
         !op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) &&
         (op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd) ||
          op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional));
}

using ClaimedOps = std::unordered_map<c10::OperatorName, c10::RegistrationHandleRAII>;

c10::KernelFunction kernel() {
  return c10::KernelFunction::makeFromBoxedFunction<&run_on_settled>();
}

/// Takes every aten op whose composite kernel would otherwise see wrapped tensors.
ClaimedOps claim_composite_ops() {
  ClaimedOps claims;
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& name : dispatcher.getAllOpNames()) {
    if (name.name.rfind("aten::", 0) != 0) continue;
    const auto op = dispatcher.findOp(name);
    if (!op || !has_explicit_composite(*op)) continue;
    claims.emplace(name,
                   dispatcher.registerImpl(name, kKey, kernel(), std::nullopt, nullptr, __FILE__));
  }
  return claims;
}

/// What is registered with the dispatcher.
struct Registrations {
  c10::RegistrationHandleRAII fallback =
      c10::Dispatcher::singleton().registerFallback(kKey, kernel(), __FILE__);
  /// Ops without a formula for gradients go on to the kernel.
  c10::RegistrationHandleRAII autograd_fallback = c10::Dispatcher::singleton().registerFallback(
      kAutogradKey, c10::KernelFunction::makeFallthrough(), __FILE__);
  ClaimedOps claims = claim_composite_ops();
};

Registrations& registrations() {
  // Never deleted: the program need not spend its end on taking a thousand kernels back.
  static auto* const all = new Registrations;
  return *all;
}

// While the program is loaded, as nobody may dispatch meanwhile. Whoever can make a wrapped tensor
// links this file, so a static library brings it along.
[[maybe_unused]] const auto& registered = registrations();

}  // namespace

WrappedMeta* wrapped_meta(const at::Tensor& tensor) {
  if (!tensor.defined()) return nullptr;
  auto* impl = tensor.unsafeGetTensorImpl();
  if (!impl->key_set().has_backend(kBackendBit)) return nullptr;
  // The key is ours, and with it whatever meta a tensor on it has.
  return static_cast<WrappedMeta*>(impl->get_backend_meta());
}

at::Tensor make_wrapped(const at::Tensor& like, c10::intrusive_ptr<WrappedMeta> meta,
                        const char* message) {
  // Autocast goes by the device's own key.
  const auto keys =
      c10::DispatchKeySet({kKey, kAutogradKey}) | (like.key_set() & c10::autocast_dispatch_keyset);
  auto wrapped = at::detail::make_tensor<c10::TensorImpl>(keys, like.dtype(), like.device());
  auto* impl = wrapped.unsafeGetTensorImpl();
  impl->release_storage_and_set_meta_custom_data_ptr_error_msg_(message);
  impl->set_sizes_and_strides(like.sizes(), like.strides());
  impl->set_backend_meta(std::move(meta));
  return wrapped;
}

void set_wrapped_handler(WrappedHandler handler) { wrapped_handler = handler; }

void release_op(const c10::OperatorName& name) { registrations().claims.erase(name); }

void run_wrapped(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                 torch::jit::Stack* stack) {
  run_on_settled(op, keys, stack);
}

at::Tensor make_pending_tensor(const at::Tensor& result, PendingPtr pending,
                               std::weak_ptr<WorldState> world) {
  return make_wrapped(
      result, c10::make_intrusive<PendingMeta>(result, std::move(pending), std::move(world)),
      kNotWaited);
}

bool is_pending_tensor(const at::Tensor& tensor) {
  const auto* meta = wrapped_meta(tensor);
  return meta != nullptr && meta->kind() == WrappedMeta::Kind::pending;
}

void settle(const at::Tensor& tensor) {
  if (!is_pending_tensor(tensor)) return;
  auto* impl = tensor.unsafeGetTensorImpl();
  // Copies of the tensor share the meta; this one must outlive its place in the tensor.
  const auto meta = impl->get_backend_meta_intrusive_ptr();
  const at::Tensor& result = static_cast<PendingMeta*>(meta.get())->wait();
  // History, hooks and version stay: those are not part of what is copied.
  impl->shallow_copy_from(result.getIntrusivePtr());
  impl->set_backend_meta(nullptr);
}

}  // namespace tessera::detail
