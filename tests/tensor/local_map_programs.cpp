#include <gtest/gtest.h>

#include <torch/torch.h>

#include "support/random_layout.h"
#include "tensor/local_map_cases.h"
#include "tensor/samples.h"
#include "tessera/comm/collectives.h"
#include "tessera/tensor/dtensor.h"
#include "tessera/tensor/local_map.h"

namespace tessera::test {
namespace {

/// How an operation may be done along one mesh dim.
struct Role {
  std::vector<Placement> inputs;
  Placement output;
  /// What the function does with its result along that mesh dim.
  enum class Communication { none, reduce, gather_rows } communication = Communication::none;
};

/// An operation on square matrices.
struct Operation {
  const char* name;
  std::vector<Role> roles;
  std::function<at::Tensor(const std::vector<at::Tensor>&)> compute;
};

using Communication = Role::Communication;

const Placement kRow = Shard(0);
const Placement kColumn = Shard(1);
const Placement kCopy = Replicate();
const Placement kSum = Partial();

std::vector<Operation> operations() {
  return {
      {"tanh",
       {{{kRow}, kRow}, {{kColumn}, kColumn}, {{kCopy}, kCopy}},
       [](const auto& in) { return torch::tanh(in[0]); }},
      {"halve",
       {{{kRow}, kRow}, {{kColumn}, kColumn}, {{kCopy}, kCopy}, {{kSum}, kSum}},
       [](const auto& in) { return in[0] * 0.5; }},
      {"transpose",
       {{{kRow}, kColumn}, {{kColumn}, kRow}, {{kCopy}, kCopy}, {{kSum}, kSum}},
       [](const auto& in) { return in[0].t(); }},
      {"gather",
       {{{kRow}, kCopy, Communication::gather_rows}, {{kCopy}, kCopy}},
       [](const auto& in) { return torch::sin(in[0]); }},
      {"reduce",
       {{{kSum}, kCopy, Communication::reduce}, {{kRow}, kRow}, {{kCopy}, kCopy}},
       [](const auto& in) { return in[0] * 1.5; }},
      {"multiply",
       {{{kRow, kRow}, kRow}, {{kColumn, kColumn}, kColumn}, {{kCopy, kCopy}, kCopy}},
       [](const auto& in) { return in[0] * in[1]; }},
      {"add",
       {{{kRow, kRow}, kRow}, {{kCopy, kCopy}, kCopy}, {{kSum, kSum}, kSum}},
       [](const auto& in) { return in[0] + in[1]; }},
      {"matmul",
       {{{kRow, kCopy}, kRow},
        {{kCopy, kColumn}, kColumn},
        {{kColumn, kRow}, kSum},
        {{kColumn, kRow}, kCopy, Communication::reduce},
        {{kCopy, kCopy}, kCopy},
        {{kSum, kCopy}, kSum}},
       [](const auto& in) { return torch::mm(in[0], in[1]) / 2; }},
  };
}

/// How the gradients of the parts of an argument are placed.
Placement gradient_of(const Placement& placement) {
  if (is_sharded(placement)) return placement;
  return is_replicate(placement) ? kSum : kCopy;
}

/// An operation with one role per mesh dim.
struct Step {
  const Operation* operation;
  std::vector<std::size_t> arguments;
  std::vector<Role> roles;
  /// Say how gradients are placed, and how large the result is, instead of leaving it out.
  bool gives_gradients = false;
  bool gives_shape = false;

  [[nodiscard]] at::Tensor run_plain(const std::vector<at::Tensor>& values) const {
    std::vector<at::Tensor> inputs;
    for (const auto argument : arguments) inputs.push_back(values[argument]);
    return operation->compute(inputs);
  }

  [[nodiscard]] at::Tensor run_mapped(const std::vector<at::Tensor>& values,
                                      const DeviceMesh& mesh) const {
    LocalMapOptions options{.redistribute_inputs = true};
    std::vector<at::Tensor> inputs;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      inputs.push_back(values[arguments[i]]);
      Placements placements;
      for (const auto& role : roles) placements.push_back(role.inputs[i]);
      options.in_placements.emplace_back(placements);
      for (auto& placement : placements) placement = gradient_of(placement);
      if (gives_gradients) options.in_grad_placements.emplace_back(placements);
    }
    if (gives_shape) options.out_shapes = {values[0].sizes().vec()};
    Placements output;
    for (const auto& role : roles) output.push_back(role.output);
    options.out_placements = {output};
    const auto fn = [&](const std::vector<at::Tensor>& in) {
      at::Tensor result = operation->compute(in);
      // The last mesh dim cuts innermost, so it is put together first.
      for (std::int64_t dim = mesh.ndim() - 1; dim >= 0; --dim) {
        const auto how = roles[static_cast<std::size_t>(dim)].communication;
        if (how == Communication::reduce)
          result = all_reduce(result, ReduceOp::sum, mesh.group(dim));
        if (how == Communication::gather_rows) result = all_gather(result, 0, mesh.group(dim));
      }
      return result;
    };
    return local_map(fn, options)(inputs);
  }
};

std::vector<Step> draw_program(Random& random, const std::vector<Operation>& all,
                               std::int64_t mesh_ndim, std::size_t inputs) {
  std::vector<Step> program;
  const auto steps = random.between(1, 5);
  for (std::int64_t i = 0; i < steps; ++i) {
    Step step{&random.pick(all), {}, {}, false, false};
    for (std::size_t k = 0; k < step.operation->roles[0].inputs.size(); ++k) {
      const auto last = static_cast<std::int64_t>(inputs + program.size()) - 1;
      // Mostly what was computed last, so that steps depend on one another.
      const bool is_last = k == 0 && !random.one_in(4);
      step.arguments.push_back(static_cast<std::size_t>(is_last ? last : random.between(0, last)));
    }
    for (std::int64_t dim = 0; dim < mesh_ndim; ++dim) {
      step.roles.push_back(random.pick(step.operation->roles));
    }
    step.gives_gradients = random.one_in(3);
    step.gives_shape = random.one_in(3);
    program.push_back(step);
  }
  return program;
}

std::string describe(const std::vector<Step>& program) {
  std::string text;
  for (const auto& step : program) {
    text += concat(step.operation->name, "(", joined(step.arguments), ") -> [");
    for (const auto& role : step.roles) text += concat(role.output, ' ');
    text += "]; ";
  }
  return text;
}

/// The result, the gradients, and the second derivatives of a loss of the gradients.
template <typename Run, typename Whole>
std::vector<at::Tensor> derivatives(const std::vector<at::Tensor>& inputs, const Run& run,
                                    const Whole& whole) {
  const auto weights = [](const at::Tensor& x, std::int64_t seed) {
    return sample_values(x.sizes().vec(), seed);
  };
  const at::Tensor result = whole(run(inputs));
  const auto loss = (result * weights(result, 31)).sum();
  std::vector<at::Tensor> all = {result};
  const auto first = torch::autograd::grad({loss}, inputs, {}, /*retain_graph=*/true,
                                           /*create_graph=*/true, /*allow_unused=*/true);
  at::Tensor second_loss = loss * 0.1;
  for (const auto& gradient : first) {
    if (!gradient.defined()) {
      all.emplace_back();
      continue;
    }
    const at::Tensor value = whole(gradient);
    all.push_back(value);
    second_loss = second_loss + (value * value * weights(value, 57)).sum();
  }
  for (const auto& gradient :
       torch::autograd::grad({second_loss}, inputs, {}, false, false, /*allow_unused=*/true)) {
    all.push_back(gradient.defined() ? whole(gradient) : gradient);
  }
  return all;
}

void check_program(World& world, std::uint64_t seed) {
  SCOPED_TRACE(concat("seed ", seed));
  Random random(seed);
  const auto mesh = draw_mesh(random, world.size());
  const auto size = random.between(1, 7);
  const auto all = operations();
  std::vector<at::Tensor> plain;
  std::vector<at::Tensor> parts;
  for (std::int64_t i = 0; i < 2; ++i) {
    plain.push_back(sample_values({size, size}, i).requires_grad_());
    const auto placements = random_placements(
        random, mesh.ndim(), 2, {.max_split_factor = 0, .partial_ops = {ReduceOp::sum}});
    parts.push_back(distribute_tensor(plain.back().detach(), mesh, placements).requires_grad_());
  }
  const auto program = draw_program(random, all, mesh.ndim(), plain.size());
  SCOPED_TRACE(concat(mesh, " size ", size, " from ", to_string(placements_of(parts[0])),
                      to_string(placements_of(parts[1])), ": ", describe(program)));
  const auto run_plain = [&](std::vector<at::Tensor> values) {
    for (const auto& step : program) values.push_back(step.run_plain(values));
    return values.back();
  };
  const auto run_mapped = [&](std::vector<at::Tensor> values) {
    for (const auto& step : program) values.push_back(step.run_mapped(values, mesh));
    return values.back();
  };
  const auto expected = derivatives(plain, run_plain, [](const at::Tensor& x) { return x; });
  const auto actual =
      derivatives(parts, run_mapped, [](const at::Tensor& x) { return full_tensor(x); });
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const char* const names[] = {"value", "gradient of 0", "gradient of 1", "second of 0",
                                 "second of 1"};
    // An input without gradient may have one of zeros instead.
    const at::Tensor wanted =
        expected[i].defined() || !actual[i].defined() ? expected[i] : torch::zeros_like(actual[i]);
    ASSERT_EQ(actual[i].defined(), wanted.defined()) << names[i];
    if (!wanted.defined()) continue;
    EXPECT_TRUE(torch::allclose(actual[i], wanted, 1e-8, 1e-10)) << names[i] << "\n"
                                                                 << actual[i] << "\n"
                                                                 << wanted;
  }
}

}  // namespace

void check_random_programs(World& world, std::uint64_t first, std::uint64_t count) {
  for (std::uint64_t seed = first; seed < first + count; ++seed) check_program(world, seed);
}

}  // namespace tessera::test
