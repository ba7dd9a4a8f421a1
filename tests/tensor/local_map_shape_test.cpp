#include <gmock/gmock.h>

#include <torch/torch.h>

#include "support/rank_test.h"
#include "tensor/local_map_cases.h"
#include "tessera/base/concat.h"
#include "tessera/comm/collectives.h"
#include "tessera/comm/comm_error.h"
#include "tessera/comm/traffic.h"
#include "tessera/tensor/dtensor.h"
#include "tessera/tensor/local_map.h"

namespace tessera {
namespace {

using test::expect_disagreement;
using test::expect_refused;
using test::identity;
using test::on_every_rank_count;
using test::sample_values;
using Tensors = std::vector<at::Tensor>;

const LocalMapOptions kRows{.out_placements = {{Shard(0)}}};

/// Equal parts of two rows and three columns.
at::Tensor equal_rows(const DeviceMesh& mesh) {
  return distribute_tensor(sample_values({2 * mesh.size(), 3}), mesh, {Shard(0)});
}

/// Runs `fn(mesh, world)` on 2, 3 and 4 ranks; everybody must get what it expects.
void on_several(const std::function<void(const DeviceMesh&, World&)>& fn) {
  for (const std::int64_t ranks : {2, 3, 4}) {
    SCOPED_TRACE(concat("on ", ranks, " ranks"));
    EXPECT_NO_THROW(run_ranks(
        ranks, [&](World& world) { fn(init_device_mesh("cpu", {world.size()}), world); },
        test::test_options()));
  }
}

TEST(LocalMapShapeTest, SizesThatDependOnArgumentsRanksAndValues) {
  on_every_rank_count(test::check_sizes_of_results);
}

TEST(LocalMapShapeTest, RanksThatTakeAResultForDifferentThingsFindOut) {
  for (const std::int64_t ranks : {2, 3, 4}) {
    EXPECT_NO_THROW(run_ranks(ranks, test::check_disagreement_on_sizes, test::test_options()));
  }
}

TEST(LocalMapShapeTest, RanksThatAskWhileOthersDoNotFindOut) {
  on_several([](const DeviceMesh& mesh, World& world) {
    const auto x = equal_rows(mesh);
    // By chance the first rank returns as much as it got; together they hold no shape at all.
    const auto fn = [&](const at::Tensor& t) { return world.rank() == 0 ? t : t.slice(0, 0, 1); };
    expect_disagreement(
        [&] {
          const auto y = local_map(fn, kRows)(x);
          (void)all_reduce(torch::ones({4}), ReduceOp::sum, mesh);
        },
        {"the ranks do not agree: rank 0 calls all_reduce(float32[4] sum), having taken output 0 "
         "of "
         "local_map for float64[",
         "; rank 1 calls all_gather_into_tensor(",
         ", having asked for the shape of output 0 of local_map; where the size of a result"});
  });
}

TEST(LocalMapShapeTest, RanksThatAskInVainAreTold) {
  run_ranks(
      2,
      [](World& world) {
        const auto mesh = init_device_mesh("cpu", {2});
        const auto x = equal_rows(mesh);
        const auto fn = [&](const at::Tensor& t) {
          return world.rank() == 0 ? t : t.slice(0, 0, 1);
        };
        if (world.rank() == 0) {
          EXPECT_EQ(local_map(fn, kRows)(x).size(0), 4);
        } else {
          expect_disagreement([&] { (void)local_map(fn, kRows)(x); },
                              {"rank 0 has returned without calling it"});
        }
      },
      test::test_options());
}

TEST(LocalMapShapeTest, DimsThatAreNotCutMustAgreeToo) {
  on_several([](const DeviceMesh& mesh, World& world) {
    const auto fn = [&](const at::Tensor& t) { return t.slice(1, 0, world.rank() == 0 ? 3 : 2); };
    const auto y = local_map(fn, kRows)(equal_rows(mesh));
    expect_disagreement([&] { barrier(mesh); }, {concat("float64[", 2 * mesh.size(), ",3][S(0)]"),
                                                 concat("float64[", 2 * mesh.size(), ",2][S(0)]")});
  });
}

TEST(LocalMapShapeTest, CopiesAndContributionsMustHaveOneShape) {
  for (const Placement& placement : {Placement(Replicate()), Placement(Partial())}) {
    on_several([&](const DeviceMesh& mesh, World& world) {
      const auto fn = [&](const at::Tensor&) { return torch::ones({world.rank() == 0 ? 1 : 2}); };
      const auto y = local_map(fn, {.out_placements = {{placement}}})(equal_rows(mesh));
      expect_disagreement([&] { barrier(mesh); }, {concat("float32[1][", placement, "]"),
                                                   concat("float32[2][", placement, "]")});
    });
  }
}

TEST(LocalMapShapeTest, DtypesMustAgree) {
  on_several([](const DeviceMesh& mesh, World& world) {
    const auto fn = [&](const at::Tensor& t) {
      return t.to(world.rank() == 0 ? torch::kFloat : torch::kDouble);
    };
    const auto y = local_map(fn, kRows)(equal_rows(mesh));
    expect_disagreement([&] { barrier(mesh); }, {"for float32[", "for float64["});
  });
}

TEST(LocalMapShapeTest, NumbersOfResultsMustAgree) {
  on_several([](const DeviceMesh& mesh, World& world) {
    const auto fn = [&](const at::Tensor& t) {
      return Tensors(static_cast<std::size_t>(world.rank() == 0 ? 1 : 2), t);
    };
    const auto y = local_map(fn, kRows)(equal_rows(mesh));
    expect_disagreement([&] { barrier(mesh); },
                        {"rank 0 calls barrier(), having taken output 0",
                         "; rank 1 calls barrier()", "taken output 1 of local_map for"});
  });
}

TEST(LocalMapShapeTest, AnErrorThatOneRankCatchesIsNoticed) {
  on_several([](const DeviceMesh& mesh, World& world) {
    const auto x = equal_rows(mesh);
    const LocalMapOptions options{.out_placements = {{Shard(0)}},
                                  .out_shapes = {{2 * mesh.size(), 3}}};
    const auto fn = [&](const at::Tensor& t) { return world.rank() == 0 ? t : t.slice(1, 0, 1); };
    if (world.rank() == 0) {
      (void)local_map(fn, options)(x);
    } else {
      expect_refused([&] { (void)local_map(fn, options)(x); },
                     {"local_map: output 0: a local tensor of shape [2,1] given on rank "});
    }
    expect_disagreement([&] { barrier(mesh); },
                        {"rank 0 calls barrier(), having taken output 0 of local_map for",
                         "; rank 1 calls barrier(); where"});
  });
}

TEST(LocalMapShapeTest, GivenShapesThatDifferAreFound) {
  on_several([](const DeviceMesh& mesh, World& world) {
    // One more row changes nothing for ranks that hold full parts.
    const std::int64_t given = 2 * mesh.size() - (world.rank() + 1 == mesh.size() ? 1 : 0);
    const auto fn = [&](const at::Tensor&) {
      return torch::ones({world.rank() + 1 == mesh.size() ? 1 : 2, 3});
    };
    (void)local_map(fn,
                    {.out_placements = {{Shard(0)}}, .out_shapes = {{given, 3}}})(equal_rows(mesh));
    expect_disagreement([&] { barrier(mesh); },
                        {"the ranks do not agree", "having taken output 0"});
  });
}

TEST(LocalMapShapeTest, ManyResultsAreComparedAtOnce) {
  // More than are kept one by one. Which of them differs does not matter.
  for (const int different : {-1, 0, 7, 8, 19}) {
    on_several([&](const DeviceMesh& mesh, World& world) {
      const auto x = equal_rows(mesh);
      for (int i = 0; i < 20; ++i) {
        const bool is_odd = i == different && world.rank() == 0;
        (void)local_map([&](const at::Tensor& t) { return t.slice(1, 0, is_odd ? 1 : 2); },
                        kRows)(x);
      }
      if (different < 0) {
        barrier(mesh);
      } else {
        expect_disagreement([&] { barrier(mesh); }, {"the ranks do not agree: rank 0 calls"});
      }
    });
  }
}

TEST(LocalMapShapeTest, GroupsAlongEveryMeshDimCompare) {
  for (const std::int64_t dim : {0, 1, 2}) {
    run_ranks(
        4,
        [&](World& world) {
          const auto mesh = init_device_mesh("cpu", {2, 2}, {"a", "b"});
          const auto x = distribute_tensor(sample_values({8, 3}), mesh, {Shard(0), Shard(0)});
          // Only rank 3 differs: from 1 along a, from 2 along b, and from all.
          const auto fn = [&](const at::Tensor& t) {
            return t.slice(1, 0, world.rank() == 3 ? 1 : 2);
          };
          (void)local_map(fn, {.out_placements = {{Shard(0), Shard(0)}}})(x);
          const Group group = dim == 2 ? mesh.group() : mesh.group(dim);
          const auto& ranks = group.ranks();
          if (std::count(ranks.begin(), ranks.end(), 3) > 0) {
            expect_disagreement([&] { barrier(group); },
                                {"float64[8,2][S(0),S(0)] on [a=2, b=2]", "float64[8,1]"});
          } else {
            barrier(group);
          }
        },
        test::test_options());
  }
}

TEST(LocalMapShapeTest, MessagesBetweenTwoRanksDoNotCompare) {
  on_several([](const DeviceMesh& mesh, World& world) {
    (void)local_map(identity, kRows)(equal_rows(mesh));
    const auto value = torch::ones({2});
    if (world.rank() == 0) send(value, 1, mesh);
    if (world.rank() == 1) (void)recv(value, 0, mesh);
    barrier(mesh);
  });
}

TEST(LocalMapShapeTest, NothingIsComparedWithoutChecks) {
  run_ranks(2,
            [](World& world) {
              const auto mesh = init_device_mesh("cpu", {2});
              const auto fn = [&](const at::Tensor& t) { return t.slice(1, 0, world.rank() + 1); };
              (void)local_map(fn, kRows)(equal_rows(mesh));
              barrier(mesh);
            },
            {.timeout = std::chrono::seconds(20), .check = false});
}

TEST(LocalMapShapeTest, PartsThatFitTogetherToNoShapeAreAnErrorOfAll) {
  on_several([](const DeviceMesh& mesh, World& world) {
    const LocalMapOptions asking{.out_placements = {{Shard(0)}}, .out_shapes = {std::nullopt}};
    const auto growing = [&](const at::Tensor&) { return torch::zeros({world.rank() + 1, 2}); };
    expect_refused([&] { (void)local_map(growing, asking)(equal_rows(mesh)); },
                   {"local_map: output 0: Inconsistent tensor metadata: rank 0 holds f32[1,2], but "
                    "in [",
                    "it would be f32["});
    const auto flat = [&](const at::Tensor& t) { return world.rank() == 1 ? t.flatten() : t; };
    expect_refused([&] { (void)local_map(flat, asking)(equal_rows(mesh)); },
                   {"local_map: output 0: Inconsistent tensor metadata: rank 1 holds f64[6], but "
                    "rank 0 holds f64[2,3]; parts of one tensor have the same number of dims"});
    barrier(mesh);
  });
}

}  // namespace
}  // namespace tessera
