// Ops that need kernels of their own: lists with gaps, and libtorch functions that read memory.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/torch.h>

#include "support/rank_test.h"
#include "tensor/samples.h"
#include "tessera/tensor/dtensor.h"

namespace tessera {
namespace {

using test::on_every_rank_count;
using test::waves;
using Places = c10::List<std::optional<at::Tensor>>;

Places places(const std::vector<at::Tensor>& tensors) {
  Places list;
  for (const auto& tensor : tensors) {
    list.push_back(tensor.defined() ? std::optional(tensor) : std::nullopt);
  }
  return list;
}

using Call = std::function<at::Tensor(const std::vector<at::Tensor>&)>;

/// Compares `call` on plain tensors with the same on DTensors, for every placement of each argument:
/// the value, and the gradient of the first argument.
void expect_same(const std::vector<at::Tensor>& arguments, const Call& call) {
  on_every_rank_count([&](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    auto plain = arguments;
    plain[0] = plain[0].clone().requires_grad_(true);
    const auto expected = call(plain);
    (expected * expected).sum().backward();
    for (std::int64_t moved = 0; moved < std::ssize(arguments); ++moved) {
      for (std::int64_t dim = -1; dim < arguments[static_cast<std::size_t>(moved)].dim(); ++dim) {
        std::vector<at::Tensor> placed;
        for (std::int64_t i = 0; i < std::ssize(arguments); ++i) {
          const Placement placement =
              i == moved && dim >= 0 ? Placement(Shard(dim)) : Placement(Replicate());
          placed.push_back(
              distribute_tensor(arguments[static_cast<std::size_t>(i)], mesh, {placement}));
        }
        placed[0].requires_grad_(true);
        const auto result = call(placed);
        EXPECT_TRUE(torch::allclose(full_tensor(result), expected)) << "argument " << moved;
        (result * result).sum().backward();
        EXPECT_TRUE(torch::allclose(full_tensor(placed[0].grad()), plain[0].grad()))
            << "argument " << moved;
        EXPECT_EQ(placements_of(placed[0].grad()), placements_of(placed[0]));
      }
    }
  });
}

TEST(SpecialOpsTest, IndexPutWithGapsInTheList) {
  expect_same({waves({5, 4, 3}), torch::tensor({0, 2, 3, 2}, torch::kLong), waves({5, 4, 3})},
              [](const auto& a) {
                return at::index_put(a[0], places({{}, a[1]}), a[2], true);
              });
}

TEST(SpecialOpsTest, IndexPutInPlace) {
  expect_same(
      {waves({5, 4}), torch::tensor({4, 0, 1}, torch::kLong), waves({3, 4})},
      [](const auto& a) { return at::index_put_(a[0].clone().mul_(1), places({a[1]}), a[2]); });
}

TEST(SpecialOpsTest, UnsafeMaskedIndex) {
  expect_same(
      {waves({6}), torch::tensor({0, 5, 3}, torch::kLong), torch::tensor({true, false, true})},
      [](const auto& a) { return at::_unsafe_masked_index(a[0], a[2], places({a[1]}), 2); });
}

TEST(SpecialOpsTest, UnsafeMaskedIndexPutAccumulate) {
  expect_same({waves({6}), torch::tensor({0, 5, 3}, torch::kLong),
               torch::tensor({true, false, true}), waves({3})},
              [](const auto& a) {
                return at::_unsafe_masked_index_put_accumulate(a[0], a[2], places({a[1]}), a[3]);
              });
}

TEST(SpecialOpsTest, MaxPool1d) {
  expect_same({waves({3, 5, 7})}, [](const auto& a) { return at::max_pool1d(a[0], 3, 2, 1); });
}

TEST(SpecialOpsTest, TensorSplitByATensor) {
  expect_same({waves({7, 3}), torch::tensor({2, 5}, torch::kLong)}, [](const auto& a) {
    const auto parts = at::tensor_split(a[0], a[1], 0);
    return parts[1] * 2 + parts[0].sum() + parts[2].sum();
  });
}

TEST(SpecialOpsTest, CtcLoss) {
  for (const auto reduction : {at::Reduction::None, at::Reduction::Mean, at::Reduction::Sum}) {
    expect_same({waves({6, 3, 4}), torch::tensor({{1, 2}, {3, 1}, {2, 2}}, torch::kLong),
                 torch::tensor({6, 5, 6}, torch::kLong), torch::tensor({2, 1, 2}, torch::kLong)},
                [&](const auto& a) {
                  return at::ctc_loss(at::log_softmax(a[0], 2), a[1], a[2], a[3], 0, reduction);
                });
  }
}

/// The same answer on all ranks, whoever holds the element that differs, or nothing at all.
TEST(SpecialOpsTest, EqualAndAllcloseAnswerAlikeOnAllRanks) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    for (const std::int64_t rows : {0, 1, 3, 5}) {
      const auto plain = waves({rows, 2});
      for (const Placement& placement :
           std::vector<Placement>{Replicate(), Shard(0), Shard(1), Partial()}) {
        const auto x = distribute_tensor(plain, mesh, {placement});
        EXPECT_TRUE(at::equal(x, distribute_tensor(plain, mesh, {Shard(0)})));
        EXPECT_TRUE(at::allclose(x, distribute_tensor(plain + 1e-12, mesh, {Shard(1)})));
        EXPECT_FALSE(at::equal(x, distribute_tensor(waves({rows + 1, 2}), mesh, {Shard(0)})));
        for (std::int64_t row = 0; row < rows; ++row) {
          auto other = plain.clone();
          other[row][1] += 0.5;
          const auto y = distribute_tensor(other, mesh, {Shard(0)});
          EXPECT_FALSE(at::equal(x, y)) << "row " << row;
          EXPECT_FALSE(at::allclose(x, y)) << "row " << row;
        }
      }
    }
    const auto x = distribute_tensor(waves({3}), mesh, {Shard(0)});
    EXPECT_THROW((void)at::equal(x, x.to(torch::kFloat)), c10::Error);
  });
}

TEST(SpecialOpsTest, ResizeToAsManyElementsIsAView) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    for (const Placement& placement : std::vector<Placement>{Replicate(), Shard(0), Shard(1)}) {
      const auto x = distribute_tensor(waves({6, 4}), mesh, {placement});
      EXPECT_TRUE(x.resize_({2, 3, 4}).is_same(x));
      EXPECT_TRUE(torch::equal(full_tensor(x), waves({2, 3, 4})));
      x.mul_(2);
      EXPECT_TRUE(torch::equal(full_tensor(x), waves({2, 3, 4}) * 2));
    }
  });
}

/// One matrix of many is singular: the ranks without it fail as well, with libtorch's own words.
TEST(SpecialOpsTest, AllRanksSayWhichMatrixIsSingular) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    auto plain = torch::eye(2, torch::kDouble).repeat({3, 1, 1});
    plain[1].zero_();
    const auto x = distribute_tensor(plain, mesh, {Shard(0)});
    EXPECT_THAT([&] { (void)at::linalg_inv(x); },
                testing::ThrowsMessage<c10::Error>(testing::HasSubstr("(Batch element 1)")));
    EXPECT_TRUE(torch::allclose(full_tensor(at::linalg_inv(distribute_tensor(
                                    plain + torch::eye(2, torch::kDouble), mesh, {Shard(0)}))),
                                at::linalg_inv(plain + torch::eye(2, torch::kDouble))));
  });
}

}  // namespace
}  // namespace tessera
