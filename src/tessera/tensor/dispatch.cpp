#include "tessera/tensor/dispatch.h"

#include <mutex>

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "tessera/base/check.h"
#include "tessera/tensor/composite_overrides.h"
#include "tessera/tensor/fallback_log.h"
#include "tessera/tensor/fast_kernels.h"
#include "tessera/tensor/implicit_replication.h"
#include "tessera/tensor/local_call.h"
#include "tessera/tensor/op_plan.h"
#include "tessera/tensor/plain_arguments.h"
#include "tessera/tensor/random_stream.h"

namespace tessera::detail {
namespace {

void handle(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, torch::jit::Stack* stack) {
  // Autocast has done what it does to this op. The ops that carry it out on local parts are ours.
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  run_distributed(op, stack);
}

/// Ranks draw alike: an op that has no kernel of ours gets a generator that all seed the same.
void give_generator(const OpTraits& traits, torch::jit::Stack& stack) {
  for (std::size_t i = 0; i < traits.arguments.size(); ++i) {
    if (traits.arguments[i].name != "generator") continue;
    auto& value = stack[stack.size() - traits.arguments.size() + i];
    TESSERA_CHECK(value.isNone(), traits.name,
                  ": a generator given for a DTensor; their random numbers follow "
                  "tessera::manual_seed, so leave it out");
    value = RandomStream::next().generator(at::kCPU);
  }
}

}  // namespace

void register_dispatch() {
  static std::once_flag once;
  std::call_once(once, [] {
    set_wrapped_handler(&handle);
    override_composites();
    register_fast_kernels();
  });
}

void run_distributed(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const OpTraits& traits = traits_of(op);
  if (traits.kernel != nullptr) {
    if (ImplicitReplication::is_enabled()) adopt_plain_arguments(traits, *stack);
    traits.kernel(op, stack);
    return;
  }
  run_planned(op, stack);
}

void run_planned(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const OpTraits& traits = traits_of(op);
  adopt_plain_arguments(traits, *stack);
  if (traits.is_random) give_generator(traits, *stack);
  const auto arguments = torch::jit::last(*stack, traits.arguments.size());
  const OpPlan& plan = plan_of(traits, {arguments.data(), arguments.size()});
  if (plan.is_fallback) FallbackLog::note(traits.name);
  LocalCall call(op, traits, plan, *stack);
  call.run();
}

}  // namespace tessera::detail
