#include "tessera/tensor/local_call.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/InferenceMode.h>

#include "tessera/base/check.h"
#include "tessera/comm/recorder.h"
#include "tessera/comm/redistribute_local.h"
#include "tessera/tensor/memory_order.h"
#include "tessera/tensor/meta_call.h"
#include "tessera/tensor/strict_mode.h"

namespace tessera::detail {
namespace {

using Kind = OpTraits::ArgumentKind;

Layout replicated_layout(const DeviceMesh& mesh, at::IntArrayRef sizes) {
  return Layout(mesh.shape(), Placements(static_cast<std::size_t>(mesh.ndim()), Replicate()),
                sizes.vec());
}

/// The first DTensor on the stack, in lists too.
at::Tensor first_dtensor(const OpTraits& traits, const torch::jit::Stack& stack, std::size_t base) {
  for (std::size_t i = 0; i < traits.arguments.size(); ++i) {
    const auto& value = stack[base + i];
    if (value.isTensor()) {
      if (dtensor_meta(value.toTensor()) != nullptr) return value.toTensor();
    } else if (traits.arguments[i].kind != Kind::value && value.isList()) {
      for (const auto& element : value.toListRef()) {
        if (element.isTensor() && dtensor_meta(element.toTensor()) != nullptr) {
          return element.toTensor();
        }
      }
    }
  }
  return {};
}

}  // namespace

LocalCall::LocalCall(const c10::OperatorHandle& op, const OpTraits& traits, const OpPlan& plan,
                     torch::jit::Stack& stack)
    : op_(op),
      traits_(traits),
      plan_(plan),
      stack_(stack),
      base_(stack.size() - traits.arguments.size()),
      first_(first_dtensor(traits, stack, base_)),
      mesh_(&dtensor_meta(first_)->mesh()) {}

void LocalCall::run() {
  if (StrictGuard::is_enabled()) check_strict();
  if (!dtensor_meta(first_)->is_inside()) [[unlikely]] {
    run_outside();
    return;
  }
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  localize_arguments();
  call();
  if (!written_.empty()) write_back();
  wrap_results();
}

void LocalCall::run_outside() {
  const auto arguments = torch::jit::last(stack_, traits_.arguments.size());
  const OpCall call(traits_, {arguments.data(), arguments.size()});
  const auto results = run_on_meta(call);
  TESSERA_CHECK(results.has_value(), call.to_string(), " was called on rank ",
                mesh_->world().rank(),
                ", which is not part of the mesh and cannot know the result; "
                "call it on the ranks of the mesh only");
  c10::SmallVector<c10::IValue, 4> values;
  std::size_t next = 0;
  const auto make = [&](const at::Tensor& shape_only) -> at::Tensor {
    const std::size_t index = next++;
    if (!shape_only.defined()) return shape_only;
    const bool is_ruled = !plan_.is_fallback && index < plan_.decision.outputs.size();
    const Layout layout =
        is_ruled ? plan_.decision.outputs[index] : replicated_layout(*mesh_, shape_only.sizes());
    const auto local = outside_local(
        at::empty({0}, shape_only.options().device(dtensor_meta(first_)->local().device())));
    return make_result(local, layout, strides_of(shape_only));
  };
  for (const auto& result : traits_.returns) {
    if (result.argument.has_value()) {
      values.push_back(stack_[base_ + *result.argument]);
      next += result.is_list ? values.back().toListRef().size() : 1;
    } else if (result.is_list) {
      TESSERA_CHECK(traits_.returns.size() == 1, traits_.name,
                    ": lists beside other results are not known outside of the mesh");
      c10::List<at::Tensor> list;
      for (const auto& element : *results) list.push_back(make(element));
      values.emplace_back(std::move(list));
    } else {
      TESSERA_CHECK(next < results->size(), call.to_string(), " was called on rank ",
                    mesh_->world().rank(), ", which is not part of the mesh and holds no value");
      values.emplace_back(make((*results)[next]));
    }
  }
  torch::jit::drop(stack_, traits_.arguments.size());
  for (auto& value : values) stack_.push_back(std::move(value));
}

void LocalCall::check_strict() const {
  const auto arguments = torch::jit::last(stack_, traits_.arguments.size());
  const OpCall call(traits_, {arguments.data(), arguments.size()});
  for (std::size_t i = 0; i < call.inputs().size(); ++i) {
    const auto& input = call.inputs()[i];
    const Layout& needed = plan_.decision.inputs[i];
    if (input.meta == nullptr || input.meta->layout().equivalent(needed)) continue;
    if (call.is_gathered(i, needed)) continue;
    TESSERA_CHECK(false, "Implicit redistribution occurred in strict mode: ", call.to_string(),
                  " needs argument '", traits_.arguments[input.argument].name, "' as ",
                  needed.placements_text(), ", it is ", input.meta->layout().placements_text(),
                  "; call redistribute(x, ", needed.placements_text(),
                  ") before, or leave the StrictGuard");
  }
}

void LocalCall::localize_arguments() {
  for (std::size_t i = 0; i < traits_.arguments.size(); ++i) {
    auto& value = stack_[base_ + i];
    if (value.isTensor()) {
      value = localize(i, std::nullopt, value.toTensor());
    } else if (traits_.arguments[i].kind == Kind::value || value.isNone()) {
      continue;
    } else if (value.isTensorList()) {
      value = localize_list(i, value);
    } else if (value.isList()) {
      value = localize_optional_list(i, value);
    }
  }
  for (const auto& [index, value] : plan_.decision.replaced) stack_[base_ + index] = value;
}

c10::IValue LocalCall::localize_list(std::size_t argument, const c10::IValue& value) {
  const auto elements = value.toListRef();
  c10::List<at::Tensor> list;
  list.reserve(elements.size());
  for (std::size_t e = 0; e < elements.size(); ++e) {
    list.push_back(localize(argument, e, elements[e].toTensor()));
  }
  return list;
}

c10::IValue LocalCall::localize_optional_list(std::size_t argument, const c10::IValue& value) {
  const auto elements = value.toListRef();
  c10::List<std::optional<at::Tensor>> list;
  list.reserve(elements.size());
  for (std::size_t e = 0; e < elements.size(); ++e) {
    list.push_back(elements[e].isTensor()
                       ? std::optional<at::Tensor>(localize(argument, e, elements[e].toTensor()))
                       : std::nullopt);
  }
  return list;
}

at::Tensor LocalCall::localize(std::size_t argument, std::optional<std::size_t> element,
                               const at::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  return traits_.arguments[argument].is_out ? localize_out(argument, element, tensor)
                                            : localize_input(argument, element, tensor);
}

at::Tensor LocalCall::localize_input(std::size_t argument, std::optional<std::size_t> element,
                                     const at::Tensor& tensor) {
  const Layout& needed = plan_.decision.inputs[next_input_++];
  const auto* meta = dtensor_meta(tensor);
  const bool is_written = traits_.arguments[argument].is_written;
  if (meta != nullptr && meta->is_copied_view()) {
    if (is_written) check_writable(tensor, traits_.name);
    bring_up_to_date(tensor);
  }
  if (meta != nullptr && meta->layout() == needed) [[likely]] {
    if (is_written) {
      return localize_written(argument, element, tensor, needed);
    }
    const at::Tensor& own = meta->local();
    // What `from_local` was given may lie otherwise than the global strides say. Views take any
    // order; kernels may rely on what was concluded from the strides.
    const bool is_in_order = traits_.is_view || own.is_contiguous() || !tensor.is_contiguous();
    return is_in_order ? own : own.contiguous();
  }
  const bool is_gathered = meta != nullptr && meta->gathered_dims() != 0;
  const CauseScope cause([&] {
    return concat(is_gathered ? "gather a parameter, for " : "implicit, for ", traits_.name);
  });
  const Layout layout =
      meta != nullptr ? meta->layout() : replicated_layout(*mesh_, tensor.sizes());
  const at::Tensor& local = meta != nullptr ? meta->local() : tensor;
  at::Tensor moved = redistribute_local(local, layout, needed, mesh_->world());
  if (meta == nullptr) {
    // A number stays one for type promotion.
    if (tensor.unsafeGetTensorImpl()->is_wrapped_number() && !moved.is_same(tensor)) {
      moved.unsafeGetTensorImpl()->set_wrapped_number(true);
    }
  } else if (is_written) {
    if (moved.is_alias_of(local)) moved = moved.clone();
    written_.push_back({argument, element, tensor, moved, layout_after(argument, needed)});
  } else if (!traits_.is_view && tensor.is_contiguous() && !moved.is_contiguous()) {
    // As above: what did not have to move is what `from_local` was given.
    moved = moved.contiguous();
  }
  return moved;
}

at::Tensor LocalCall::localize_written(std::size_t argument, std::optional<std::size_t> element,
                                       const at::Tensor& tensor, const Layout& layout) {
  const at::Tensor& own = dtensor_meta(tensor)->local();
  // The fused optimizers walk through the memory of all their tensors in step.
  const bool walks = traits_.base_name.starts_with("_fused") && tensor.is_contiguous();
  const at::Tensor substitute = walks && !own.is_contiguous() ? own.contiguous() : at::Tensor();
  written_.push_back({argument, element, tensor, substitute, layout});
  return substitute.defined() ? substitute : own;
}

/// A product in place may take its Partial from the other factor: what was whole then holds
/// contributions afterwards.
const Layout& LocalCall::layout_after(std::size_t argument, const Layout& before) const {
  if (plan_.is_fallback) return before;
  for (std::size_t i = 0; i < traits_.returns.size() && i < plan_.decision.outputs.size(); ++i) {
    const auto& result = traits_.returns[i];
    if (!result.is_list && result.argument == argument) return plan_.decision.outputs[i];
  }
  return before;
}

at::Tensor LocalCall::localize_out(std::size_t argument, std::optional<std::size_t> element,
                                   const at::Tensor& tensor) {
  const auto& meta = *dtensor_meta(tensor);
  if (!plan_.is_fallback) {
    written_.push_back({argument, element, tensor, {}, meta.layout()});
    return meta.local();
  }
  at::Tensor substitute = at::empty({0}, meta.local().options());
  written_.push_back({argument, element, tensor, substitute, meta.layout()});
  return substitute;
}

void LocalCall::call() {
  if (!plan_.decision.run) {
    op_.callBoxed(stack_);
    return;
  }
  plan_.decision.run(op_, stack_);
  // The op itself writes where it is told; whatever stands in for it returns new tensors.
  const std::size_t first = stack_.size() - traits_.returns.size();
  for (std::size_t i = 0; i < traits_.returns.size(); ++i) {
    for (const auto& written : written_) {
      if (traits_.returns[i].argument != written.argument || written.element) continue;
      const at::Tensor& target =
          written.substitute.defined() ? written.substitute : dtensor_meta(written.tensor)->local();
      if (!stack_[first + i].toTensor().is_same(target)) target.copy_(stack_[first + i].toTensor());
    }
  }
}

void LocalCall::write_back() {
  for (const auto& written : written_) {
    if (!written.substitute.defined()) continue;
    const auto* meta = dtensor_meta(written.tensor);
    const auto& value = written.substitute;
    const bool is_out = traits_.arguments[written.argument].is_out;
    if (is_out && value.sizes() != written.tensor.sizes()) {
      // libtorch lets an empty `out` take the shape of the result.
      TESSERA_CHECK(written.tensor.numel() == 0, traits_.name, ": out has shape [",
                    joined(written.tensor.sizes(), ","), "], the result [",
                    joined(value.sizes(), ","), "]; pass an out of that shape");
      const auto made = make_dtensor(value, *mesh_, replicated_layout(*mesh_, value.sizes()));
      written.tensor.unsafeGetTensorImpl()->shallow_copy_from(made.getIntrusivePtr());
      continue;
    }
    const Layout from = is_out ? replicated_layout(*mesh_, value.sizes()) : written.layout;
    meta->local().copy_(redistribute_local(value, from, meta->layout(), mesh_->world()));
  }
  for (const auto& written : written_) write_through(written.tensor);
}

const at::Tensor* LocalCall::written(std::size_t argument,
                                     std::optional<std::size_t> element) const {
  for (const auto& written : written_) {
    if (written.argument == argument && written.element == element) return &written.tensor;
  }
  return nullptr;
}

void LocalCall::wrap_results() {
  const std::size_t first = stack_.size() - traits_.returns.size();
  for (std::size_t i = 0; i < traits_.returns.size(); ++i) {
    auto& value = stack_[first + i];
    const auto& result = traits_.returns[i];
    if (value.isTensor()) {
      if (result.argument.has_value()) {
        const auto* original = written(*result.argument, std::nullopt);
        if (original != nullptr) {
          value = *original;
          ++next_output_;
          continue;
        }
      }
      value = wrap(value.toTensor());
    } else if (result.is_list && value.isTensorList()) {
      const auto elements = value.toListRef();
      c10::List<at::Tensor> list;
      list.reserve(elements.size());
      for (std::size_t e = 0; e < elements.size(); ++e) {
        const auto* original = result.argument.has_value() ? written(*result.argument, e) : nullptr;
        list.push_back(original != nullptr ? *original : wrap(elements[e].toTensor()));
      }
      value = std::move(list);
    }
  }
}

at::Tensor LocalCall::wrap(const at::Tensor& local) {
  const std::size_t index = next_output_++;
  if (!local.defined()) return local;
  const auto& decision = plan_.decision;
  if (plan_.is_fallback || index >= decision.outputs.size()) {
    TESSERA_INTERNAL_CHECK(plan_.is_fallback, traits_.name, " gave more results than its rule has");
    TESSERA_CHECK(local.layout() == at::kStrided && !local.is_quantized(), traits_.name,
                  ": the result is a tensor of ", local.layout(), " layout and dtype ",
                  local.scalar_type(), ", but DTensors are dense and not quantized; call it on ",
                  "to_local(x) or full_tensor(x)");
    const auto layout = replicated_layout(*mesh_, local.sizes());
    return marked(make_result(local, layout, strides_of(local)), local);
  }
  const GlobalStrides& strides =
      decision.strides.empty() ? kContiguousStrides : decision.strides[index];
  return marked(make_result(traits_.is_view ? local : in_memory_order(local, strides),
                            decision.outputs[index], strides),
                local);
}

at::Tensor LocalCall::make_result(const at::Tensor& local, const Layout& layout,
                                  const GlobalStrides& strides) const {
  if (traits_.is_view && c10::InferenceMode::is_enabled() && !first_.is_inference()) [[unlikely]] {
    // In inference mode, too, what views an ordinary tensor is one, as libtorch relies on.
    const c10::InferenceMode ordinary(false);
    return make_dtensor(local, *mesh_, layout, strides);
  }
  return make_dtensor(local, *mesh_, layout, strides);
}

CopiedView LocalCall::view_of_first(const at::Tensor& result, bool was_moved,
                                    bool was_copied) const {
  const auto& base = *dtensor_meta(first_);
  const bool is_dense = first_.is_contiguous() && first_.storage_offset() == 0;
  // Ranks may differ in whether they had to copy, but not in what has to be communicated: whole
  // tensors are at hand everywhere.
  const bool is_whole = base.layout().equivalent(replicated_layout(*mesh_, first_.sizes()));
  CopiedView view;
  if (result.scalar_type() != first_.scalar_type() || (plan_.is_fallback && !is_dense)) {
    view.kind = CopiedView::Kind::unknown;
  } else if (!was_moved && !was_copied) {
    view.kind = CopiedView::Kind::alias;
  } else if (!was_moved && !is_whole) {
    view.kind = CopiedView::Kind::reordered;
  }
  auto* impl = first_.unsafeGetTensorImpl();
  view.base =
      c10::static_intrusive_pointer_cast<DTensorMeta>(impl->get_backend_meta_intrusive_ptr());
  view.base_geometry = geometry_of(first_);
  view.own_geometry = geometry_of(result);
  view.writes = impl->version_counter();
  view.seen = view.writes.enabled() ? view.writes.current_version() : 0;
  return view;
}

at::Tensor LocalCall::marked(at::Tensor result, const at::Tensor& local) const {
  const auto gathered = dtensor_meta(first_)->gathered_dims();
  // With copies, a cast to a lower precision comes before the gathering.
  if (gathered != 0 && (traits_.is_view || traits_.base_name == "_to_copy")) {
    dtensor_meta(result)->set_gathered_dims(gathered);
  }
  if (!traits_.is_view) return result;
  const auto& base = *dtensor_meta(first_);
  const bool was_moved = !base.layout().equivalent(plan_.decision.inputs.front());
  // Parts that could not be viewed so were copied; those without elements share nothing anyway.
  const bool was_copied = local.numel() > 0 && !local.is_alias_of(base.local());
  if (!base.is_copied_view() && !was_moved && !was_copied) return result;
  dtensor_meta(result)->set_copied_view(view_of_first(result, was_moved, was_copied));
  return result;
}

}  // namespace tessera::detail
