#include "tensor/redistribute_all_cases.h"

#include <gtest/gtest.h>

#include <torch/torch.h>

#include "support/random_layout.h"
#include "tensor/local_map_cases.h"
#include "tensor/samples.h"
#include "tessera/base/concat.h"
#include "tessera/comm/traffic.h"
#include "tessera/tensor/dtensor.h"

namespace tessera::test {
namespace {

using Tensors = std::vector<at::Tensor>;

/// What is moved, and where to.
struct List {
  Tensors whole;
  Tensors sources;
  std::vector<DeviceMesh> meshes;
  std::vector<Placements> placements;
};

List draw_list(Random& random, const World& world) {
  const auto mesh = draw_mesh(random, world.size());
  const auto other = draw_mesh(random, world.size());
  List list;
  const auto count = random.between(1, 6);
  for (std::int64_t i = 0; i < count; ++i) {
    const Shape shape = random_shape(random, {.max_dims = 3, .max_size = 7, .max_numel = 100});
    const PlacementOptions options{.max_split_factor = 2, .partial_ops = {ReduceOp::sum}};
    const DeviceMesh& to = random.one_in(4) ? other : mesh;
    const auto ndim = static_cast<std::int64_t>(shape.size());
    list.whole.push_back(sample_values(shape, i));
    if (random.one_in(4)) list.whole.back() = list.whole.back().to(at::kFloat);
    list.sources.push_back(distribute_tensor(
        list.whole.back(), mesh, random_placements(random, mesh.ndim(), ndim, options)));
    if (!random.one_in(4)) list.sources.back().requires_grad_();
    list.meshes.push_back(to);
    list.placements.push_back(random_placements(random, to.ndim(), ndim, options));
  }
  return list;
}

/// The results, the gradients of a loss of all of them, and the second derivatives.
template <typename Move>
Tensors derivatives(const List& list, const Move& move) {
  const Tensors moved = move();
  Tensors all;
  at::Tensor loss = torch::zeros({}, at::kDouble);
  for (std::size_t i = 0; i < moved.size(); ++i) {
    EXPECT_EQ(placements_of(moved[i]), layout_of(moved[i]).placements());
    const auto value = full_tensor(moved[i]).to(at::kDouble);
    all.push_back(value.detach());
    // Results that nothing depends on have no gradient.
    if (i % 3 != 2) loss = loss + value.pow(3).sum();
  }
  Tensors leaves;
  for (const auto& source : list.sources) {
    if (source.requires_grad()) leaves.push_back(source);
  }
  if (leaves.empty() || !loss.requires_grad()) return all;
  const auto first = torch::autograd::grad({loss}, leaves, {}, true, true, /*allow_unused=*/true);
  at::Tensor second_loss = loss * 0.1;
  for (const auto& gradient : first) {
    if (!gradient.defined()) {
      all.emplace_back();
      continue;
    }
    const auto value = full_tensor(gradient);
    all.push_back(value.detach());
    second_loss = second_loss + value.pow(2).sum().to(at::kDouble);
  }
  for (const auto& gradient :
       torch::autograd::grad({second_loss}, leaves, {}, false, false, /*allow_unused=*/true)) {
    all.push_back(gradient.defined() ? full_tensor(gradient) : gradient);
  }
  return all;
}

void check_list(World& world, std::uint64_t seed) {
  SCOPED_TRACE(concat("seed ", seed, " on rank ", world.rank()));
  Random random(seed);
  const List list = draw_list(random, world);
  RedistributeOptions options{.async_op = random.one_in(2)};
  if (random.one_in(4)) options.backward_dtype = at::kFloat;
  const auto together = derivatives(
      list, [&] { return redistribute_all(list.sources, list.meshes, list.placements, options); });
  const auto one_by_one = derivatives(list, [&] {
    Tensors moved;
    for (std::size_t i = 0; i < list.sources.size(); ++i) {
      moved.push_back(redistribute(list.sources[i], list.meshes[i], list.placements[i], options));
    }
    return moved;
  });
  ASSERT_EQ(together.size(), one_by_one.size());
  for (std::size_t i = 0; i < together.size(); ++i) {
    ASSERT_EQ(together[i].defined(), one_by_one[i].defined()) << i;
    if (!together[i].defined()) continue;
    EXPECT_EQ(together[i].scalar_type(), one_by_one[i].scalar_type());
    EXPECT_TRUE(torch::allclose(together[i], one_by_one[i], 1e-5, 1e-7)) << i << "\n"
                                                                         << together[i] << "\n"
                                                                         << one_by_one[i];
  }
}

}  // namespace

void check_random_lists(World& world, std::uint64_t first, std::uint64_t count) {
  for (std::uint64_t seed = first; seed < first + count; ++seed) check_list(world, seed);
}

void check_one_collective(World& world) {
  const auto mesh = init_device_mesh("cpu", {world.size()});
  Tensors parameters;
  for (std::int64_t i = 0; i < 30; ++i) {
    parameters.push_back(
        distribute_tensor(sample_values({i + 2, 6}, i), mesh, {Shard(0)}).requires_grad_());
  }
  CommDebugMode forth;
  Tensors moved;
  {
    const auto scope = forth.record();
    moved = redistribute_all(parameters, {{Shard(1)}});
  }
  at::Tensor loss = torch::zeros({}, at::kDouble);
  for (const auto& each : moved) loss = loss + to_local(each).pow(2).sum();
  CommDebugMode back;
  {
    const auto scope = back.record();
    loss.backward();
  }
  const int expected = world.size() == 1 ? 0 : 1;
  EXPECT_EQ(forth.total_count(), expected);
  EXPECT_EQ(back.total_count(), expected);
  if (expected == 1) {
    EXPECT_EQ(forth.count("all_to_all_single"), 1);
    EXPECT_EQ(forth.records()[0].cause, "redistribute_all of 30 tensors");
    EXPECT_EQ(back.records()[0].cause, "backward of redistribute_all");
  }
  for (std::int64_t i = 0; i < 30; ++i) {
    const auto& parameter = parameters[static_cast<std::size_t>(i)];
    const auto values = sample_values({i + 2, 6}, i);
    EXPECT_TRUE(torch::equal(full_tensor(moved[static_cast<std::size_t>(i)]), values));
    EXPECT_EQ(placements_of(parameter.grad()), Placements{Shard(0)});
    EXPECT_TRUE(torch::allclose(full_tensor(parameter.grad()), 2 * values));
  }
}

}  // namespace tessera::test
