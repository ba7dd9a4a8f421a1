#include "tessera/tensor/fast_kernels.h"

#include <algorithm>
#include <memory>
#include <tuple>
#include <type_traits>
#include <vector>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/add_ops.h>
#include <ATen/ops/addcdiv_ops.h>
#include <ATen/ops/addcmul_ops.h>
#include <ATen/ops/addmm_ops.h>
#include <ATen/ops/baddbmm_ops.h>
#include <ATen/ops/bmm_ops.h>
#include <ATen/ops/copy_ops.h>
#include <ATen/ops/div_ops.h>
#include <ATen/ops/exp_ops.h>
#include <ATen/ops/gelu_ops.h>
#include <ATen/ops/lerp_ops.h>
#include <ATen/ops/mm_ops.h>
#include <ATen/ops/mul_ops.h>
#include <ATen/ops/mv_ops.h>
#include <ATen/ops/neg_ops.h>
#include <ATen/ops/pow_ops.h>
#include <ATen/ops/relu_ops.h>
#include <ATen/ops/rsqrt_ops.h>
#include <ATen/ops/sigmoid_ops.h>
#include <ATen/ops/silu_ops.h>
#include <ATen/ops/sqrt_ops.h>
#include <ATen/ops/sub_ops.h>
#include <ATen/ops/tanh_ops.h>
#include <ATen/ops/threshold_backward_ops.h>
#include <ATen/ops/zero_ops.h>
#include <torch/library.h>

#include "tessera/tensor/dtensor_meta.h"
#include "tessera/tensor/memory_order.h"
#include "tessera/tensor/op_plan.h"

namespace tessera::detail {
namespace {

/// Along mesh dims of one rank too: the rules make Replicate of it there, and results must be placed
/// alike whichever way an op takes, as ranks may take different ones.
bool has_any_partial(const Layout& layout) {
  const auto& placements = layout.placements();
  return std::any_of(placements.begin(), placements.end(), is_partial);
}

/// What the tensors of a call have in common, as far as they were looked at.
struct Common {
  const DTensorMeta* meta = nullptr;
  bool is_simple = true;
  bool has_copied_view = false;

  void see(const at::Tensor& tensor) {
    const auto* own = dtensor_meta(tensor);
    has_copied_view |= own != nullptr && own->is_copied_view();
    if (own == nullptr) {
      // Plain numbers count as replicated; anything else needs a closer look.
      is_simple =
          is_simple && tensor.defined() && tensor.dim() == 0 && wrapped_meta(tensor) == nullptr;
    } else if (meta == nullptr) {
      meta = own;
      is_simple = is_simple && !has_any_partial(own->layout()) && tensor.is_contiguous() &&
                  tensor.storage_offset() == 0 && own->is_inside();
    } else {
      is_simple = is_simple && own->layout() == meta->layout() && own->mesh() == meta->mesh() &&
                  tensor.is_contiguous() && tensor.storage_offset() == 0;
    }
  }
  template <typename Other>
  void see(const Other& /*value*/) {}
};

const at::Tensor& local_of(const at::Tensor& tensor) {
  const auto* meta = dtensor_meta(tensor);
  return meta != nullptr ? meta->local() : tensor;
}
template <typename Other>
const Other& local_of(const Other& value) {
  return value;
}

template <typename Op, typename Schema = typename Op::schema>
struct FastKernel;

template <typename Op, typename Result, typename... Arguments>
struct FastKernel<Op, Result(Arguments...)> {
  static constexpr bool kInPlace = std::is_same_v<Result, at::Tensor&>;

  static const c10::OperatorHandle& handle() {
    static const c10::OperatorHandle op =
        c10::Dispatcher::singleton().findSchemaOrThrow(Op::name, Op::overload_name);
    return op;
  }

  static Result run(c10::DispatchKeySet keys, Arguments... arguments) {
    Common common;
    (common.see(arguments), ...);
    const auto& first = std::get<0>(std::forward_as_tuple(arguments...));
    if (!common.is_simple || common.meta == nullptr || dtensor_meta(first) == nullptr ||
        common.has_copied_view) {
      return run_generally(keys, arguments...);
    }
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    if constexpr (kInPlace) {
      at::Tensor local = dtensor_meta(first)->local();
      call_in_place(local, arguments...);
      return const_cast<at::Tensor&>(first);  // NOLINT: what the schema asks for.
    } else {
      const at::Tensor local = Op::call(local_of(arguments)...);
      return make_dtensor(in_memory_order(local, kContiguousStrides), common.meta->mesh(),
                          common.meta->layout());
    }
  }

  static Result run_generally(c10::DispatchKeySet keys, Arguments... arguments) {
    torch::jit::Stack stack;
    stack.reserve(sizeof...(Arguments));
    torch::jit::push(stack, arguments...);
    run_wrapped(handle(), keys, &stack);
    if constexpr (kInPlace) {
      return const_cast<at::Tensor&>(  // NOLINT: what the schema asks for.
          static_cast<const at::Tensor&>(std::get<0>(std::forward_as_tuple(arguments...))));
    } else {
      return torch::jit::pop(stack).toTensor();
    }
  }

 private:
  template <typename First, typename... Rest>
  static void call_in_place(at::Tensor& local, const First& /*self*/, const Rest&... rest) {
    Op::call(local, local_of(rest)...);
  }
};

/// Ops with a rule and one result, whose plan is found without a stack.
///
/// The plan must be of the simple kind: nothing moves, and the op itself computes the result.
template <typename Op, typename Schema = typename Op::schema>
struct PlannedKernel;

template <typename Op, typename... Arguments>
struct PlannedKernel<Op, at::Tensor(Arguments...)> {
  static at::Tensor run(c10::DispatchKeySet keys, Arguments... arguments) {
    using General = FastKernel<Op, at::Tensor(Arguments...)>;
    thread_local const OpTraits& traits = traits_of(General::handle());
    PlanKey key;
    KeyWriter(key).write_unboxed(traits, arguments...);
    const OpPlan* plan = find_plan(key);
    First first;
    (first.see(arguments), ...);
    if (plan == nullptr || !plan->is_simple || first.has_pending) {
      return General::run_generally(keys, arguments...);
    }
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const at::Tensor local = Op::call(local_of(arguments)...);
    return make_dtensor(in_memory_order(local, kContiguousStrides), first.meta->mesh(),
                        plan->decision.outputs.front());
  }

 private:
  struct First {
    const DTensorMeta* meta = nullptr;
    bool has_pending = false;

    void see(const at::Tensor& tensor) {
      const auto* own = wrapped_meta(tensor);
      if (own == nullptr) return;
      if (own->kind() == WrappedMeta::Kind::pending) {
        has_pending = true;
        return;
      }
      const auto* distributed = static_cast<const DTensorMeta*>(own);
      // Copies of views have to be looked at more closely, too.
      has_pending |= distributed->is_copied_view();
      if (meta == nullptr) meta = distributed;
    }
    template <typename Other>
    void see(const Other& /*value*/) {}
  };
};

template <template <typename, typename> typename Kernel, typename... Ops>
void register_all(torch::Library& library) {
  const auto add = [&](const char* name, const char* overload, torch::CppFunction kernel) {
    release_op({name, overload});
    const std::string full =
        *overload == '\0' ? std::string(name) : std::string(name) + "." + overload;
    library.impl(full.c_str(), std::move(kernel));
  };
  (add(Ops::name, Ops::overload_name, torch::CppFunction(&Kernel<Ops, typename Ops::schema>::run)),
   ...);
}

}  // namespace

void register_fast_kernels() {
  namespace ops = at::_ops;
  // Never taken back: at the end of the program the dispatcher may be gone first.
  static auto& library = *new torch::Library(torch::Library::IMPL, "aten",
                                             c10::DispatchKey::PrivateUse2, __FILE__, __LINE__);
  register_all<FastKernel, ops::add_Tensor, ops::add__Tensor, ops::add_Scalar, ops::add__Scalar,
               ops::sub_Tensor, ops::sub__Tensor, ops::mul_Tensor, ops::mul__Tensor,
               ops::mul_Scalar, ops::mul__Scalar, ops::div_Tensor, ops::div__Tensor,
               ops::div_Scalar, ops::div__Scalar, ops::addcmul, ops::addcmul_, ops::addcdiv,
               ops::addcdiv_, ops::lerp__Scalar, ops::sqrt, ops::sqrt_, ops::rsqrt, ops::neg,
               ops::exp, ops::relu, ops::relu_, ops::sigmoid, ops::tanh, ops::gelu, ops::silu,
               ops::pow_Tensor_Scalar, ops::threshold_backward, ops::copy_, ops::zero_>(library);
  register_all<PlannedKernel, ops::mm, ops::bmm, ops::addmm, ops::baddbmm, ops::mv>(library);
}

}  // namespace tessera::detail
