#include <gtest/gtest.h>

#include <torch/torch.h>

#include "layout/allocation_count.h"
#include "support/rank_test.h"
#include "tessera/comm/traffic.h"
#include "tessera/tensor/conversion.h"
#include "tessera/tensor/dtensor.h"
#include "tessera/tensor/local_map.h"

namespace tessera {
namespace {

using test::allocations_so_far;
using test::on_every_rank_count;

/// How many allocations a call makes once everything that is kept was found.
template <typename Call>
std::int64_t allocations_of(const Call& call) {
  for (int i = 0; i < 3; ++i) call();
  const std::int64_t before = allocations_so_far();
  call();
  return allocations_so_far() - before;
}

at::Tensor first(const at::Tensor& x, const at::Tensor&) { return x; }

/// What taking two DTensors apart and making one of the first part takes: the wrappers.
std::int64_t wrapping(const at::Tensor& x, const at::Tensor& y) {
  const auto mesh = mesh_of(x);
  const Layout layout = layout_of(x);
  return allocations_of([&] {
    const auto a = detail::unwrap_local(x, layout);
    const auto b = detail::unwrap_local(y, layout);
    (void)detail::wrap_local(a, mesh, layout, layout);
  });
}

void expect_nothing_but_wrappers(const DeviceMesh& mesh, const Placements& placements,
                                 const LocalMapOptions& options, bool requires_grad) {
  const auto make = [&] {
    return distribute_tensor(torch::ones({12, 12}), mesh, placements).requires_grad_(requires_grad);
  };
  const auto x = make();
  const auto y = make();
  const auto mapped = local_map(first, options);
  EXPECT_EQ(allocations_of([&] { (void)mapped(x, y); }), wrapping(x, y))
      << to_string(placements) << (requires_grad ? " with history" : "");
}

TEST(LocalMapAllocationTest, NothingButWrappersWhenLayoutsFit) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    for (const Placements& placements : {Placements{Shard(0)}, Placements{Shard(1)},
                                         Placements{Replicate()}, Placements{Partial()}}) {
      expect_nothing_but_wrappers(mesh, placements, {.out_placements = {placements}}, false);
      expect_nothing_but_wrappers(mesh, placements,
                                  {.out_placements = {placements},
                                   .in_placements = {placements, placements},
                                   .mesh = mesh,
                                   .redistribute_inputs = true},
                                  false);
    }
    expect_nothing_but_wrappers(mesh, {Shard(0)}, {.out_placements = {{Shard(0)}}}, true);
  });
  run_ranks(4, [](World&) {
    const auto mesh = init_device_mesh("cpu", {2, 2});
    const Placements placements = {Shard(0), Shard(0)};
    expect_nothing_but_wrappers(mesh, placements, {.out_placements = {placements}}, false);
    expect_nothing_but_wrappers(mesh, {Shard(1), Replicate()},
                                {.out_placements = {{Shard(1), Replicate()}}}, false);
  });
}

}  // namespace
}  // namespace tessera
