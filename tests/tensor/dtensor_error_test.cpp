#include <gmock/gmock.h>

#include <torch/torch.h>

#include "support/rank_test.h"
#include "tensor/samples.h"
#include "tessera/tensor/dtensor.h"
#include "tessera/tensor/factories.h"
#include "tessera/tensor/implicit_replication.h"
#include "tessera/tensor/random.h"
#include "tessera/tensor/strict_mode.h"

namespace tessera {
namespace {

using test::counted;

using testing::HasSubstr;

/// What `fn` throws on two ranks; every rank must throw it by itself.
std::string error_of(const std::function<void(const DeviceMesh&)>& fn) {
  std::string text;
  run_ranks(2, [&](World& world) {
    const auto mesh = init_device_mesh("cpu", {2}, {"dp"});
    try {
      fn(mesh);
      ADD_FAILURE() << "nothing was thrown on rank " << world.rank();
    } catch (const std::exception& error) {
      if (world.rank() == 0) text = error.what();
    }
  });
  return text;
}

TEST(DTensorErrorTest, StrictModeNamesTheCallTheArgumentAndTheRemedy) {
  EXPECT_THAT(error_of([](const DeviceMesh& mesh) {
                const auto a = distribute_tensor(counted({4, 4}, at::kFloat), mesh, {Shard(0)});
                const auto b = distribute_tensor(counted({4, 4}, at::kFloat), mesh, {Shard(1)});
                const StrictGuard strict;
                (void)(a + b);
              }),
              HasSubstr("Implicit redistribution occurred in strict mode: aten::add.Tensor("
                        "f32[4,4][S(0)], f32[4,4][S(1)]) on [dp=2] needs argument 'other' as "
                        "[S(0)], it is [S(1)]; call redistribute(x, [S(0)]) before, or leave the "
                        "StrictGuard"));
}

TEST(DTensorErrorTest, StrictModeShowsMatricesOfAMeshOfTwoDims) {
  std::string text;
  run_ranks(4, [&](World& world) {
    const auto mesh = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
    const auto a = distribute_tensor(counted({8, 6}, at::kFloat), mesh, {Shard(0), Replicate()});
    const auto b = distribute_tensor(counted({6, 4}, at::kFloat), mesh, {Shard(0), Shard(1)});
    const StrictGuard strict;
    try {
      (void)torch::mm(a, b);
      ADD_FAILURE();
    } catch (const InvalidArgument& error) {
      if (world.rank() == 0) text = error.what();
    }
  });
  EXPECT_THAT(text, HasSubstr("aten::mm(f32[8,6][S(0),R], f32[6,4][S(0),S(1)]) on [dp=2, tp=2]"));
}

TEST(DTensorErrorTest, StrictModeRefusesOpsWithoutARule) {
  EXPECT_THAT(error_of([](const DeviceMesh& mesh) {
                const auto a = distribute_tensor(counted({4, 4}, at::kFloat), mesh, {Shard(0)});
                const StrictGuard strict;
                (void)torch::histc(a);
              }),
              HasSubstr("aten::histc(f32[4,4][S(0)]) on [dp=2] needs argument 'self' as [R]"));
}

TEST(DTensorErrorTest, StrictModeAllowsWhatStaysAndCanBeLeft) {
  run_ranks(2, [](World&) {
    const auto mesh = init_device_mesh("cpu", {2});
    const auto a = distribute_tensor(counted({4, 4}, at::kFloat), mesh, {Shard(0)});
    const auto b = distribute_tensor(counted({4, 4}, at::kFloat), mesh, {Shard(1)});
    const StrictGuard strict;
    EXPECT_TRUE(StrictGuard::is_enabled());
    EXPECT_NO_THROW((void)(a * a).relu().sum(1));
    const StrictGuard off(false);
    EXPECT_NO_THROW((void)(a + b));
  });
}

TEST(DTensorErrorTest, StrictModeLetsStatisticsReduce) {
  test::on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    const auto a = distribute_tensor(counted({5, 4}, at::kFloat), mesh, {Shard(0)});
    const auto labels =
        distribute_tensor(torch::tensor({0, 3, 1, 2, 2}, torch::kLong), mesh, {Shard(0)});
    const StrictGuard strict;
    EXPECT_TRUE(torch::allclose(full_tensor(a.norm()), counted({5, 4}, at::kFloat).norm()));
    EXPECT_TRUE(torch::allclose(full_tensor(a.norm(3, 0)), counted({5, 4}, at::kFloat).norm(3, 0)));
    EXPECT_TRUE(torch::allclose(full_tensor(a.std(0)), counted({5, 4}, at::kFloat).std(0)));
    EXPECT_TRUE(torch::allclose(full_tensor(a.mean()), counted({5, 4}, at::kFloat).mean()));
    EXPECT_TRUE(
        torch::allclose(full_tensor(a.logsumexp(0)), counted({5, 4}, at::kFloat).logsumexp(0)));
    EXPECT_TRUE(torch::allclose(full_tensor(torch::nll_loss(a, labels)),
                                torch::nll_loss(counted({5, 4}, at::kFloat), full_tensor(labels))));
    EXPECT_TRUE(torch::allclose(
        full_tensor(torch::cross_entropy_loss(a, labels)),
        torch::cross_entropy_loss(counted({5, 4}, at::kFloat), full_tensor(labels))));
  });
}

TEST(DTensorErrorTest, PlainTensorsDoNotMix) {
  EXPECT_THAT(
      error_of([](const DeviceMesh& mesh) {
        (void)(distribute_tensor(counted({4, 4}, at::kFloat), mesh, {Shard(0)}) +
               counted({4, 4}, at::kFloat));
      }),
      HasSubstr("aten::add.Tensor: got mixed torch.Tensor and DTensor: argument 'other' is a "
                "plain tensor f32[4,4] (plain), others are DTensors on"));
}

TEST(DTensorErrorTest, ResultsOfDTensorsDoNotGoToPlainTensors) {
  const auto x = [](const DeviceMesh& mesh) {
    return distribute_tensor(counted({4, 4}, at::kFloat), mesh, {Shard(0)});
  };
  const std::vector<std::function<void(const DeviceMesh&, at::Tensor&)>> all = {
      [&](const DeviceMesh& mesh, at::Tensor& out) { at::add_out(out, x(mesh), x(mesh)); },
      [&](const DeviceMesh& mesh, at::Tensor& out) { at::mm_out(out, x(mesh), x(mesh)); },
      [&](const DeviceMesh& mesh, at::Tensor& out) { at::sum_out(out, x(mesh), 0); },
      [&](const DeviceMesh& mesh, at::Tensor& out) {
        at::cat_out(out, {x(mesh), x(mesh)});
      },
      [&](const DeviceMesh& mesh, at::Tensor& out) {
        at::masked_select_out(out, x(mesh), x(mesh).gt(0));
      },
      [&](const DeviceMesh& mesh, at::Tensor& out) { at::histc_out(out, x(mesh)); }};
  for (const auto& write : all) {
    for (const std::int64_t rows : {0, 4}) {
      EXPECT_THAT(
          error_of([&](const DeviceMesh& mesh) {
            auto out = torch::ones({rows, 4});
            const auto before = out.clone();
            try {
              write(mesh, out);
            } catch (...) {
              EXPECT_TRUE(torch::equal(out, before));
              throw;
            }
          }),
          testing::AllOf(HasSubstr("got mixed torch.Tensor and DTensor: argument 'out' is a "
                                   "plain tensor f32["),
                         HasSubstr("make it one with distribute_tensor or from_local")));
    }
  }
}

TEST(DTensorErrorTest, ResultsOfPlainTensorsDoNotGoToDTensors) {
  EXPECT_THAT(error_of([](const DeviceMesh& mesh) {
                auto out = zeros({4, 4}, mesh, {Shard(0)});
                at::add_out(out, counted({4, 4}, at::kFloat), counted({4, 4}, at::kFloat));
              }),
              HasSubstr("aten::add.out: got mixed torch.Tensor and DTensor: argument 'self' is a "
                        "plain tensor f32[4,4] (plain)"));
}

TEST(DTensorErrorTest, ElementsAreNotSelectedByPlainMasks) {
  EXPECT_THAT(
      error_of([](const DeviceMesh& mesh) {
        (void)zeros({4, 4}, mesh, {Shard(0)}).masked_select(counted({4, 4}, at::kFloat).gt(3));
      }),
      HasSubstr("aten::masked_select: got mixed torch.Tensor and DTensor: argument 'mask' "
                "is a plain tensor bool[4,4] (plain)"));
  EXPECT_THAT(
      error_of([](const DeviceMesh& mesh) {
        (void)counted({4, 4}, at::kFloat).masked_select(zeros({4, 4}, mesh, {Shard(0)}).gt(3));
      }),
      HasSubstr("argument 'self' is a plain tensor f32[4,4] (plain)"));
}

TEST(DTensorErrorTest, MeshesDoNotMix) {
  EXPECT_THAT(
      error_of([](const DeviceMesh& mesh) {
        const auto other = init_device_mesh("cpu", {1, 2});
        (void)(distribute_tensor(counted({4}, at::kFloat), mesh, {Shard(0)}) +
               distribute_tensor(counted({4}, at::kFloat), other, {Replicate(), Shard(0)}));
      }),
      HasSubstr("all DTensors of an operation must be on the same mesh: redistribute(x, mesh, "
                "placements) moves them"));
}

TEST(DTensorErrorTest, PlainTensorsCountAsReplicatedOnRequest) {
  run_ranks(2, [](World&) {
    const auto mesh = init_device_mesh("cpu", {2});
    const auto whole = torch::arange(6.0).reshape({3, 2});
    const auto x = distribute_tensor(whole, mesh, {Shard(0)});
    const ImplicitReplication guard;
    EXPECT_TRUE(torch::equal(full_tensor(x + whole), 2 * whole));
    EXPECT_TRUE(torch::equal(full_tensor(torch::cat({x, whole})), torch::cat({whole, whole})));
  });
}

TEST(DTensorErrorTest, PlainTensorsWithGradientsOrWrittenStayErrors) {
  const auto mixed = HasSubstr("got mixed torch.Tensor and DTensor");
  EXPECT_THAT(error_of([](const DeviceMesh& mesh) {
                const ImplicitReplication guard;
                (void)(zeros({4}, mesh, {Shard(0)}) + torch::zeros({4}, torch::requires_grad()));
              }),
              mixed);
  EXPECT_THAT(error_of([](const DeviceMesh& mesh) {
                const ImplicitReplication guard;
                torch::zeros({4}).add_(zeros({4}, mesh, {Shard(0)}));
              }),
              mixed);
}

TEST(DTensorErrorTest, GradientsOfPartsAreAsLargeAsTheParts) {
  EXPECT_THAT(error_of([](const DeviceMesh& mesh) {
                const auto x = distribute_tensor(counted({4, 4}, at::kFloat), mesh, {Shard(0)});
                (void)to_local(x, {.grad_placements = Placements{Replicate()}});
              }),
              HasSubstr("to_local: grad_placements: the gradient of [4,4][S(0)] on [dp=2], cannot "
                        "be R along mesh dim 0: every rank computes that of its own part; write "
                        "S(0) there, as the tensor is"));
  EXPECT_THAT(error_of([](const DeviceMesh& mesh) {
                (void)from_local(counted({4, 4}, at::kFloat), mesh, {Partial()},
                                 {.grad_placements = Placements{Shard(1)}});
              }),
              HasSubstr("from_local: grad_placements: the gradient of [4,4][P(sum)] on [dp=2], "
                        "cannot be S(1) along mesh dim 0: every rank computes one as large as the "
                        "tensor; write R there if all compute the same, P(sum) or P(avg) if theirs "
                        "add up"));
  run_ranks(2, [](World&) {
    const auto mesh = init_device_mesh("cpu", {2}, {"dp"});
    const auto x =
        distribute_tensor(counted({4, 4}, at::kFloat), mesh, {Shard(1)}).requires_grad_(true);
    to_local(x, {.grad_placements = Placements{Shard(-1)}}).sum().backward();
    EXPECT_EQ(placements_of(x.grad()), Placements{Shard(1)});
  });
}

TEST(DTensorErrorTest, GeneratorsAreRefused) {
  EXPECT_THAT(error_of([](const DeviceMesh& mesh) {
                auto x = zeros({4}, mesh, {Shard(0)});
                x.uniform_(0, 1, at::detail::createCPUGenerator());
              }),
              HasSubstr("a generator given for a DTensor; their random numbers follow "
                        "tessera::manual_seed, so leave it out"));
}

TEST(DTensorErrorTest, MemoryIsNotThereToBeRead) {
  EXPECT_THAT(error_of([](const DeviceMesh& mesh) { (void)zeros({4}, mesh).data_ptr<float>(); }),
              HasSubstr("use to_local(x)"));
}

TEST(DTensorErrorTest, ShapesOfAnOpAreJudgedByTheOp) {
  EXPECT_THAT(error_of([](const DeviceMesh& mesh) {
                (void)torch::mm(zeros({4, 3}, mesh, {Shard(0)}), zeros({4, 3}, mesh, {Shard(0)}));
              }),
              HasSubstr("mat1 and mat2 shapes cannot be multiplied (4x3 and 4x3)"));
}

TEST(DTensorErrorTest, ResizingIsRefused) {
  EXPECT_THAT(
      error_of([](const DeviceMesh& mesh) {
        zeros({4, 2}, mesh, {Shard(0)}).resize_({3});
      }),
      HasSubstr("f32[4,2][S(0)] cannot be resized to [3]; make a new DTensor of that shape"));
}

TEST(DTensorErrorTest, SparseAndQuantizedResultsAreRefused) {
  EXPECT_THAT(
      error_of([](const DeviceMesh& mesh) {
        (void)distribute_tensor(counted({4, 4}, at::kFloat), mesh, {Shard(0)}).to_sparse();
      }),
      testing::AllOf(HasSubstr("the result is a tensor of Sparse layout and dtype Float, but "
                               "DTensors are dense and not quantized"),
                     HasSubstr("call it on to_local(x) or full_tensor(x)")));
  EXPECT_THAT(
      error_of([](const DeviceMesh& mesh) {
        (void)torch::quantize_per_tensor(ones({4, 4}, mesh, {Shard(0)}), 0.1, 0, at::kQInt8);
      }),
      HasSubstr("Strided layout and dtype QInt8, but DTensors are dense"));
}

TEST(DTensorErrorTest, OrthogonalInitialisationMakesPlainTensors) {
  EXPECT_THAT(
      error_of([](const DeviceMesh& mesh) {
        auto w = zeros({4, 4}, mesh, {Shard(0)});
        torch::nn::init::orthogonal_(w);
      }),
      HasSubstr("aten::copy_: got mixed torch.Tensor and DTensor: argument 'src' is a plain"));
}

TEST(DTensorErrorTest, PrintsItselfAndItsPart) {
  run_ranks(2, [](World& world) {
    const auto mesh = init_device_mesh("cpu", {2}, {"dp"});
    const auto text = to_string(distribute_tensor(counted({3, 2}, at::kFloat), mesh, {Shard(0)}));
    EXPECT_THAT(text, HasSubstr(world.rank() == 0
                                    ? "DTensor f32[3,2][S(0)] on [dp=2], rank 0 holds [2,2]:"
                                    : "DTensor f32[3,2][S(0)] on [dp=2], rank 1 holds [1,2]:"));
    EXPECT_THAT(text, HasSubstr(world.rank() == 0 ? " 2  3" : " 4  5"));
  });
}

}  // namespace
}  // namespace tessera
