// What other implementations of distributed tensors are known to get wrong.

#include <limits>

#include <gtest/gtest.h>

#include <torch/torch.h>

#include "support/rank_test.h"
#include "tensor/samples.h"
#include "tessera/tensor/dtensor.h"
#include "tessera/tensor/factories.h"

namespace tessera {
namespace {

using test::meshes_of;
using test::on_every_rank_count;
using test::waves;

Placements everywhere(const DeviceMesh& mesh, const Placement& placement) {
  return Placements(static_cast<std::size_t>(mesh.ndim()), placement);
}

void expect_close(const at::Tensor& actual, const at::Tensor& expected) {
  ASSERT_TRUE(is_dtensor(actual));
  EXPECT_TRUE(torch::allclose(full_tensor(actual), expected, 1e-10, 1e-12, true))
      << to_string(actual) << "\nexpected " << expected;
}

TEST(KnownFaultsTest, MeanOverUnevenShards) {
  on_every_rank_count([](World& world) {
    for (const auto& mesh : meshes_of(world)) {
      for (const std::int64_t rows : {1, 2, 5, 7, 9}) {
        const auto x = waves({rows, 3});
        const auto d = distribute_tensor(x, mesh, everywhere(mesh, Shard(0)));
        expect_close(d.mean(), x.mean());
        expect_close(d.mean(0), x.mean(0));
        expect_close(d.mean({0, 1}, true), x.mean({0, 1}, true));
      }
    }
  });
}

TEST(KnownFaultsTest, GradientOfAMeanOverUnevenShards) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    const auto d = distribute_tensor(waves({5, 3}), mesh, {Shard(0)}).requires_grad_(true);
    d.mean().backward();
    expect_close(d.grad(), torch::full({5, 3}, 1.0 / 15, torch::kDouble));
  });
}

TEST(KnownFaultsTest, ANumberIsAddedToAPartialOnce) {
  on_every_rank_count([](World& world) {
    for (const auto& mesh : meshes_of(world)) {
      const auto x = waves({4, 3});
      for (const auto op : {ReduceOp::sum, ReduceOp::avg, ReduceOp::max, ReduceOp::min}) {
        const auto d = distribute_tensor(x, mesh, everywhere(mesh, Partial(op)));
        expect_close(d + 3, x + 3);
        expect_close(1 - d, 1 - x);
        expect_close(d + torch::tensor(2.0, torch::kDouble), x + 2);
        expect_close(d.clone().add_(5), x + 5);
      }
    }
  });
}

TEST(KnownFaultsTest, NormsOfAPartialAndOverShards) {
  on_every_rank_count([](World& world) {
    for (const auto& mesh : meshes_of(world)) {
      const auto x = waves({5, 3});
      const double infinity = std::numeric_limits<double>::infinity();
      for (const Placement& placement : {Placement(Partial()), Placement(Partial(ReduceOp::avg)),
                                         Placement(Shard(0)), Placement(Shard(1))}) {
        const auto d = distribute_tensor(x, mesh, everywhere(mesh, placement));
        for (const double order : {0.0, 1.0, 2.0, 3.5, infinity, -infinity}) {
          expect_close(torch::linalg_vector_norm(d, order), torch::linalg_vector_norm(x, order));
        }
        expect_close(d.norm(), x.norm());
        expect_close(torch::_foreach_norm({d, d})[1], x.norm());
      }
    }
  });
}

TEST(KnownFaultsTest, GreatestAndLeastOverEmptyShards) {
  on_every_rank_count([](World& world) {
    for (const auto& mesh : meshes_of(world)) {
      // All values on one side of 0, so that a 0 from an empty part would win.
      for (const auto& x : {waves({2, 3}) - 5, waves({1, 4}) + 5}) {
        const auto d = distribute_tensor(x, mesh, everywhere(mesh, Shard(0)));
        expect_close(d.max(), x.max());
        expect_close(d.min(), x.min());
        expect_close(torch::amax(d, 0), torch::amax(x, 0));
        expect_close(torch::amin(d, 0, true), torch::amin(x, 0, true));
        expect_close(std::get<0>(d.max(0)), std::get<0>(x.max(0)));
        const auto whole = (x * 10).to(torch::kLong);
        const auto numbers = distribute_tensor(whole, mesh, everywhere(mesh, Shard(0)));
        EXPECT_TRUE(torch::equal(full_tensor(numbers.max()), whole.max()));
        EXPECT_TRUE(torch::equal(full_tensor(numbers.min()), whole.min()));
      }
    }
  });
}

TEST(KnownFaultsTest, ReplicateBecomesPartialOfAnyOp) {
  on_every_rank_count([](World& world) {
    for (const auto& mesh : meshes_of(world)) {
      const auto x = waves({5, 2}) - 3;
      for (const auto op :
           {ReduceOp::sum, ReduceOp::avg, ReduceOp::max, ReduceOp::min, ReduceOp::product}) {
        for (const Placement& source : {Placement(Replicate()), Placement(Shard(0))}) {
          const auto d = distribute_tensor(x, mesh, everywhere(mesh, source));
          const auto partial = redistribute(d, everywhere(mesh, Partial(op)));
          EXPECT_TRUE(is_partial(placements_of(partial)[0]));
          expect_close(partial, x);
        }
      }
    }
  });
}

TEST(KnownFaultsTest, PartialOfAnyOpBecomesAShard) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    const auto rank = static_cast<double>(world.rank());
    const auto size = static_cast<double>(world.size());
    const auto x = waves({5, 3});
    struct Expected {
      ReduceOp op;
      at::Tensor whole;
    };
    const std::vector<Expected> all = {{ReduceOp::sum, x * size + size * (size - 1) / 2},
                                       {ReduceOp::avg, x + (size - 1) / 2},
                                       {ReduceOp::max, x + size - 1},
                                       {ReduceOp::min, x}};
    for (const auto& [op, whole] : all) {
      const auto d = from_local(x + rank, mesh, {Partial(op)});
      for (const std::int64_t dim : {0, 1}) expect_close(redistribute(d, {Shard(dim)}), whole);
      expect_close(redistribute(d, {Replicate()}), whole);
    }
  });
}

TEST(KnownFaultsTest, FiveOverFour) {
  run_ranks(4, [](World& world) {
    const auto mesh = init_device_mesh("cpu", {4});
    const auto x = waves({5, 2});
    const auto d = distribute_tensor(x, mesh, {Shard(0)});
    const std::int64_t held[] = {2, 2, 1, 0};
    EXPECT_EQ(to_local(d).size(0), held[world.rank()]);
    EXPECT_EQ(d.size(0), 5);
    expect_close(d, x);
    expect_close(d * 2 + d, x * 3);
    expect_close(d.sum(0), x.sum(0));
    const auto w = waves({2, 3});
    expect_close(torch::mm(d, distribute_tensor(w, mesh, {Replicate()})), torch::mm(x, w));
    expect_close(torch::softmax(d, 0), torch::softmax(x, 0));
    expect_close(redistribute(d, {Shard(1)}), x);
    const auto again = from_local(to_local(d), mesh, {Shard(0)});
    EXPECT_EQ(again.sizes(), x.sizes());
    expect_close(again, x);
  });
}

TEST(KnownFaultsTest, IndicesOutsideOfAnEmbeddingAreAnError) {
  for (const Placement& placement : {Placement(Replicate()), Placement(Shard(0))}) {
    for (const std::int64_t index : {-1, 7}) {
      const auto message = test::failure_of(3, [&](World&) {
        const auto mesh = init_device_mesh("cpu", {3});
        const auto weight = distribute_tensor(waves({7, 2}), mesh, {placement});
        const auto indices = distribute_tensor(
            torch::tensor({0, static_cast<int>(index)}, torch::kLong), mesh, {Replicate()});
        (void)full_tensor(torch::embedding(weight, indices));
      });
      EXPECT_NE(message.find("index out of range in self"), std::string::npos) << message;
    }
  }
}

}  // namespace
}  // namespace tessera
