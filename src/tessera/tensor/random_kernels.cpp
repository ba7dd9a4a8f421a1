#include <cmath>
#include <numbers>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include "tessera/base/check.h"
#include "tessera/comm/redistribute_local.h"
#include "tessera/tensor/conversion.h"
#include "tessera/tensor/op_call.h"
#include "tessera/tensor/random_stream.h"
#include "tessera/tensor/rules.h"

namespace tessera::detail {
namespace {

using Draw = std::function<double(std::uint64_t)>;

/// In (0, 1], for logarithms.
double positive_unit(std::uint64_t bits) { return (static_cast<double>(bits >> 11) + 1) * 0x1p-53; }

/// The layout in which a tensor is drawn: the same values on all ranks along a Partial mesh dim
/// would be summed up, so there the whole is drawn and then spread.
Layout drawn_layout(const Layout& layout) { return gradient_layout(layout); }

/// This rank's part of a random tensor; as double or float.
at::Tensor draw_part(const DeviceMesh& mesh, const Layout& layout, at::ScalarType dtype,
                     const Draw& draw) {
  const RandomStream stream = RandomStream::next();
  const auto position = mesh.shape().position_of(mesh.world().rank());
  if (!position) return {};
  return draw_local(stream, layout, *position, at::TensorOptions().dtype(dtype), draw);
}

/// Overwrites a DTensor with random values.
void fill_random(const at::Tensor& tensor, const Draw& draw) {
  const auto& meta = *dtensor_meta(tensor);
  check_writable(tensor, "a random operation in place");
  const Layout drawn = drawn_layout(meta.layout());
  // Low precision and integers are converted from doubles, which hold all of them that matter.
  const auto dtype = tensor.scalar_type();
  const auto local =
      draw_part(meta.mesh(), drawn, dtype == at::kFloat ? at::kFloat : at::kDouble, draw);
  if (!local.defined()) return;
  meta.local().copy_(redistribute_local(local, drawn, meta.layout(), meta.mesh().world()));
  write_through(tensor);
}

at::Tensor empty_like_drawn(const at::Tensor& tensor, std::optional<at::ScalarType> dtype) {
  const auto& meta = *dtensor_meta(tensor);
  const auto local = at::empty_like(
      meta.local(), meta.local().options().dtype(dtype.value_or(tensor.scalar_type())),
      at::MemoryFormat::Contiguous);
  return make_dtensor(local, meta.mesh(), drawn_layout(meta.layout()));
}

/// The arguments of a random op on the stack, by name.
class Arguments {
 public:
  Arguments(const c10::OperatorHandle& op, torch::jit::Stack* stack)
      : schema_(op.schema()), stack_(stack) {
    const auto* generator = find("generator");
    TESSERA_CHECK(generator == nullptr || generator->isNone(), op.schema().operator_name(),
                  ": a generator given for a DTensor; their random numbers follow "
                  "tessera::manual_seed, so leave it out");
  }

  [[nodiscard]] at::Tensor self() const { return last(0).toTensor(); }
  [[nodiscard]] const c10::IValue& last(std::size_t index) const {
    return torch::jit::peek(*stack_, index, schema_.arguments().size());
  }
  [[nodiscard]] const c10::IValue* find(std::string_view name) const {
    for (std::size_t i = 0; i < schema_.arguments().size(); ++i) {
      if (schema_.arguments()[i].name() == name) return &last(i);
    }
    return nullptr;
  }
  [[nodiscard]] double number(std::string_view name, double otherwise = 0) const {
    const auto* value = find(name);
    if (value == nullptr || value->isNone()) return otherwise;
    return value->toScalar().toDouble();
  }
  [[nodiscard]] std::optional<at::ScalarType> dtype() const {
    const auto* value = find("dtype");
    return value == nullptr ? std::nullopt : value->toOptional<at::ScalarType>();
  }

  /// What the op works on: its first argument if it writes there, otherwise a new tensor like it.
  [[nodiscard]] at::Tensor target() const {
    const auto* alias = schema_.arguments()[0].alias_info();
    if (alias != nullptr && alias->isWrite()) return self();
    return empty_like_drawn(self(), dtype());
  }

  void give_back(const at::Tensor& result) {
    torch::jit::drop(*stack_, schema_.arguments().size());
    torch::jit::push(*stack_, result);
  }

 private:
  const c10::FunctionSchema& schema_;
  torch::jit::Stack* stack_;
};

/// A kernel that overwrites or makes a tensor with `make_draw(arguments, dtype)`.
template <auto make_draw>
void run_fill(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  Arguments arguments(op, stack);
  const at::Tensor target = arguments.target();
  fill_random(target, make_draw(arguments, target.scalar_type()));
  arguments.give_back(target);
}

Draw uniform_draw(const Arguments& arguments, at::ScalarType dtype) {
  const double from = arguments.number("from", 0);
  const double width = arguments.number("to", 1) - from;
  return [=](std::uint64_t bits) { return from + width * unit_number(bits, dtype); };
}

Draw unit_draw(const Arguments& /*arguments*/, at::ScalarType dtype) {
  return [=](std::uint64_t bits) { return unit_number(bits, dtype); };
}

Draw normal_draw(const Arguments& arguments, at::ScalarType /*dtype*/) {
  const double mean = arguments.number("mean", 0);
  const double std = arguments.number("std", 1);
  TESSERA_CHECK(std >= 0, "normal_: std ", std, " given; it must be 0 or more");
  return [=](std::uint64_t bits) { return mean + std * normal_number(bits); };
}

Draw log_normal_draw(const Arguments& arguments, at::ScalarType /*dtype*/) {
  const double mean = arguments.number("mean", 1);
  const double std = arguments.number("std", 2);
  return [=](std::uint64_t bits) { return std::exp(mean + std * normal_number(bits)); };
}

Draw exponential_draw(const Arguments& arguments, at::ScalarType /*dtype*/) {
  const double lambda = arguments.number("lambd", 1);
  TESSERA_CHECK(lambda > 0, "exponential_: lambd ", lambda, " given; it must be above 0");
  return [=](std::uint64_t bits) { return -std::log(positive_unit(bits)) / lambda; };
}

Draw cauchy_draw(const Arguments& arguments, at::ScalarType /*dtype*/) {
  const double median = arguments.number("median", 0);
  const double sigma = arguments.number("sigma", 1);
  return [=](std::uint64_t bits) {
    return median + sigma * std::tan(std::numbers::pi * (unit_number(bits, at::kDouble) - 0.5));
  };
}

Draw geometric_draw(const Arguments& arguments, at::ScalarType /*dtype*/) {
  const double p = arguments.number("p", 0.5);
  TESSERA_CHECK(p > 0 && p < 1, "geometric_: p ", p, " given; it must be between 0 and 1");
  return
      [=](std::uint64_t bits) { return std::ceil(std::log(positive_unit(bits)) / std::log1p(-p)); };
}

/// Whole numbers in [from, to).
Draw integers(double from, double to) {
  TESSERA_CHECK(from < to, "a random integer between ", from, " and ", to,
                " was asked for; from must be below to");
  const auto range = static_cast<std::uint64_t>(to - from);
  // The remainder prefers small numbers by less than one in 2^11 even for the widest range.
  return [=](std::uint64_t bits) { return from + static_cast<double>(bits % range); };
}

Draw random_draw(const Arguments& arguments, at::ScalarType dtype) {
  double greatest = 0x1p53;
  if (dtype == at::kFloat) greatest = 0x1p24;
  if (dtype == at::kHalf) greatest = 0x1p11;
  if (dtype == at::kBFloat16) greatest = 0x1p8;
  if (dtype == at::kBool) greatest = 2;
  if (c10::isIntegralType(dtype, false) && c10::elementSize(dtype) < 8) {
    greatest = std::ldexp(
        1.0, static_cast<int>(c10::elementSize(dtype)) * 8 - (c10::isSignedType(dtype) ? 1 : 0));
  }
  return integers(arguments.number("from", 0), arguments.number("to", greatest));
}

Draw randint_draw(const Arguments& arguments, at::ScalarType /*dtype*/) {
  return integers(arguments.number("low", 0), arguments.number("high", 1));
}

void check_probability(double p) {
  TESSERA_CHECK(p >= 0 && p <= 1, "a probability of ", p, " given; allowed are 0 to 1");
}

Draw bernoulli_draw(double p) {
  check_probability(p);
  return [=](std::uint64_t bits) { return unit_number(bits, at::kDouble) < p ? 1.0 : 0.0; };
}

/// bernoulli by a number, by a tensor of probabilities, or of the argument's own.
void run_bernoulli(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  Arguments arguments(op, stack);
  const auto* p = arguments.find("p");
  const at::Tensor target = arguments.target();
  if (p != nullptr && !p->isTensor()) {
    fill_random(target, bernoulli_draw(p->toScalar().toDouble()));
  } else {
    const at::Tensor probabilities = p != nullptr ? p->toTensor() : arguments.self();
    const at::Tensor drawn = empty_like_drawn(target, at::kDouble);
    fill_random(drawn, [](std::uint64_t bits) { return unit_number(bits, at::kDouble); });
    target.copy_(drawn.lt(probabilities.to(at::kDouble)));
  }
  arguments.give_back(target);
}

/// native_dropout(input, p, train) -> (output, mask).
void run_dropout(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const Arguments arguments(op, stack);
  const at::Tensor input = arguments.self();
  const double p = arguments.number("p");
  check_probability(p);
  const auto* train = arguments.find("train");
  const bool drops = train->isNone() || train->toBool();
  const at::Tensor mask = empty_like_drawn(input, at::kBool);
  fill_random(mask, bernoulli_draw(drops ? 1 - p : 1));
  at::Tensor output = input.mul(mask);
  if (drops && p < 1) output.mul_(1 / (1 - p));
  torch::jit::drop(*stack, op.schema().arguments().size());
  torch::jit::push(*stack, output, mask);
}

}  // namespace

void add_random_kernels(KernelTable& table) {
  table.emplace("uniform", &run_fill<&uniform_draw>);
  table.emplace("rand_like", &run_fill<&unit_draw>);
  for (const auto* name : {"normal_functional", "randn_like"}) {
    table.emplace(name, &run_fill<&normal_draw>);
  }
  table.emplace("log_normal", &run_fill<&log_normal_draw>);
  table.emplace("exponential", &run_fill<&exponential_draw>);
  table.emplace("cauchy", &run_fill<&cauchy_draw>);
  table.emplace("geometric", &run_fill<&geometric_draw>);
  table.emplace("random", &run_fill<&random_draw>);
  table.emplace("randint_like", &run_fill<&randint_draw>);
  table.emplace("bernoulli", &run_bernoulli);
  table.emplace("native_dropout", &run_dropout);
}

KernelFunction normal_kernel() { return &run_fill<&normal_draw>; }

}  // namespace tessera::detail
