#include <gtest/gtest.h>

#include <torch/torch.h>

#include "support/rank_test.h"
#include "tensor/samples.h"
#include "tessera/comm/traffic.h"
#include "tessera/tensor/dtensor.h"
#include "tessera/tensor/strict_mode.h"

namespace tessera {
namespace {

using test::counted;
using test::on_every_rank_count;

struct ViewCase {
  const char* name;
  std::vector<std::int64_t> from;
  Placement placement;
  std::vector<std::int64_t> to;
  Placement expected;
};

/// Views between these move nothing on any number of ranks from 1 to 4: all sizes divide by 12.
const std::vector<ViewCase>& free_views() {
  static const std::vector<ViewCase> all = {
      {"merge behind the cut dim", {12, 2, 3}, Shard(0), {12, 6}, Shard(0)},
      {"merge the cut dim with those behind", {12, 2, 3}, Shard(0), {72}, Shard(0)},
      {"merge in front of the cut dim", {2, 3, 12}, Shard(2), {6, 12}, Shard(1)},
      {"merge the cut dim into one in front", {5, 12}, Shard(1), {60}, StridedShard(0, 5)},
      {"split a cut dim, outer part first", {24, 3}, Shard(0), {12, 2, 3}, Shard(0)},
      {"split a dim beside the cut one", {12, 6}, Shard(0), {12, 2, 3}, Shard(0)},
      {"add a dim", {12, 3}, Shard(0), {1, 12, 1, 3}, Shard(1)},
      {"take a dim away", {1, 12, 1, 3}, Shard(1), {12, 3}, Shard(0)},
      {"split what was merged", {60}, StridedShard(0, 5), {5, 12}, Shard(1)},
  };
  return all;
}

TEST(DTensorViewTest, EvenSplitsAndMergesMoveNothing) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    for (const auto& view : free_views()) {
      SCOPED_TRACE(view.name);
      const auto x = counted(view.from);
      const auto d = distribute_tensor(x, mesh, {view.placement});
      CommDebugMode traffic;
      at::Tensor result;
      {
        const auto scope = traffic.record();
        const StrictGuard strict;
        result = d.view(view.to);
      }
      EXPECT_EQ(traffic.total_count(), 0);
      if (world.size() > 1) {
        EXPECT_EQ(placements_of(result)[0], view.expected) << to_string(result);
      }
      EXPECT_TRUE(torch::equal(full_tensor(result), x.view(view.to)));
      // A view, not a copy: what is written to it is seen.
      result.mul_(2);
      EXPECT_TRUE(torch::equal(full_tensor(d), x * 2));
    }
  });
}

TEST(DTensorViewTest, NestedShardsKeepTheirOrder) {
  run_ranks(4, [](World&) {
    const auto mesh = init_device_mesh("cpu", {2, 2});
    const auto x = counted({8, 3});
    const auto d = distribute_tensor(x, mesh, {Shard(0), Shard(0)});
    CommDebugMode traffic;
    {
      const auto scope = traffic.record();
      const auto split = d.view({4, 2, 3});
      EXPECT_TRUE(torch::equal(to_local(split).flatten(), to_local(d).flatten()));
    }
    EXPECT_EQ(traffic.total_count(), 0);
    EXPECT_TRUE(torch::equal(full_tensor(d.view({2, 4, 3})), x.view({2, 4, 3})));
  });
}

TEST(DTensorViewTest, UnevenMergesAreRight) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    for (const auto& sizes :
         std::vector<std::vector<std::int64_t>>{{5, 3}, {3, 5}, {1, 7}, {7, 1}}) {
      const auto x = counted(sizes);
      for (const std::int64_t dim : {0, 1}) {
        const auto d = distribute_tensor(x, mesh, {Shard(dim)});
        EXPECT_TRUE(torch::equal(full_tensor(d.view({-1})), x.view({-1})));
        EXPECT_TRUE(torch::equal(full_tensor(d.view({-1}).view(sizes)), x));
        EXPECT_TRUE(torch::equal(full_tensor(d.t().reshape({-1})), x.t().reshape({-1})));
      }
    }
  });
}

TEST(DTensorViewTest, ChainsOfViewsAndWritesReachTheTensor) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    const auto x = counted({6, 4});
    const auto d = distribute_tensor(x, mesh, {Shard(0)});
    const auto change = [](const at::Tensor& tensor) {
      tensor.t().slice(0, 1, 3).mul_(3).add_(1);
      tensor.view({6, 2, 2}).select(2, 1).neg_();
      tensor.unsqueeze(0).squeeze(0).transpose(0, 1).select(0, 2).zero_();
      tensor.chunk(2, 1)[1].clamp_(-20, 20);
    };
    change(d);
    change(x);
    EXPECT_TRUE(torch::equal(full_tensor(d), x)) << full_tensor(d) << x;
  });
}

TEST(DTensorViewTest, ViewsThatHadToMoveAreStillViews) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    for (const Placement& placement :
         {Placement(Shard(0)), Placement(Shard(1)), Placement(StridedShard(0, 2)),
          Placement(Partial()), Placement(Replicate())}) {
      const auto x = counted({5, 4});
      const auto d = distribute_tensor(x, mesh, {placement});
      const auto check = [&](const std::function<at::Tensor(const at::Tensor&)>& view) {
        const auto plain = view(x);
        const auto viewed = view(d);
        EXPECT_TRUE(torch::equal(full_tensor(viewed), plain));
        // What is written to it reaches what it views.
        plain.mul_(2).add_(1);
        viewed.mul_(2).add_(1);
        EXPECT_TRUE(torch::equal(full_tensor(d), x)) << to_string(d) << x;
        // What is written there is seen, by its views and theirs.
        const auto part = plain.dim() > 0 ? plain.slice(0, 0, 2) : plain.unsqueeze(0);
        const auto own_part = plain.dim() > 0 ? viewed.slice(0, 0, 2) : viewed.unsqueeze(0);
        x.sub_(3);
        d.sub_(3);
        EXPECT_TRUE(torch::equal(full_tensor(own_part), part));
        EXPECT_TRUE(torch::equal(full_tensor(viewed * 1), plain));
        EXPECT_TRUE(torch::equal(full_tensor(redistribute(viewed, {Replicate()})), plain));
        own_part.neg_();
        part.neg_();
        EXPECT_TRUE(torch::equal(full_tensor(d), x)) << to_string(d) << x;
      };
      check([](const at::Tensor& t) { return t.select(0, 3); });
      check([](const at::Tensor& t) { return t.slice(0, 1, 4, 2); });
      check([](const at::Tensor& t) { return t.slice(1, 1).t(); });
      check([](const at::Tensor& t) { return t.diagonal(); });
      check([](const at::Tensor& t) { return t.view({-1}); });
      check([](const at::Tensor& t) { return t.view({2, 10}).select(0, 1); });
      check([](const at::Tensor& t) { return t.select(1, 2).select(0, 4); });
    }
  });
}

TEST(DTensorViewTest, GradientsPassThroughWritesToViews) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    const auto run = [](const at::Tensor& leaf) {
      auto x = leaf * 1;
      x.select(1, 0).mul_(5);
      x.t().slice(0, 2).add_(x.t().slice(0, 0, 2));
      (x * x).sum().backward();
      return leaf.grad();
    };
    const auto plain = counted({5, 4}).requires_grad_(true);
    const auto d = distribute_tensor(counted({5, 4}), mesh, {Shard(0)}).requires_grad_(true);
    const auto expected = run(plain);
    EXPECT_TRUE(torch::allclose(full_tensor(run(d)), expected));
  });
}

}  // namespace
}  // namespace tessera
