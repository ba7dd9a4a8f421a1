#include "tessera/tensor/local_map.h"

#include <gmock/gmock.h>

#include <torch/torch.h>

#include "support/rank_test.h"
#include "tensor/local_map_cases.h"
#include "tessera/comm/collectives.h"
#include "tessera/comm/traffic.h"
#include "tessera/tensor/dtensor.h"

namespace tessera {
namespace {

struct Batch {
  at::Tensor tokens;
  std::optional<at::Tensor> mask;
  std::string name;
};

}  // namespace

template <>
struct TreeFields<Batch> {
  static auto of(auto& batch) { return std::tie(batch.tokens, batch.mask, batch.name); }
};

namespace {

using test::identity;
using test::on_every_rank_count;
using test::sample_values;
using Sizes = std::vector<std::int64_t>;
using Tensors = std::vector<at::Tensor>;

TEST(LocalMapTest, MatmulWithAllReduceIsOneCollective) {
  on_every_rank_count(test::check_matmul_with_all_reduce);
}
TEST(LocalMapTest, OutputsThatAreNoTensorsNeedNoPlacements) {
  on_every_rank_count(test::check_output_without_placements);
}
TEST(LocalMapTest, PlainInputsGivePlainOutputs) { on_every_rank_count(test::check_plain_inputs); }
TEST(LocalMapTest, InputsMustBePlacedAsAsked) { on_every_rank_count(test::check_in_placements); }
TEST(LocalMapTest, InputsAreRedistributedWhenAllowed) {
  on_every_rank_count(test::check_redistribution_of_inputs);
}
TEST(LocalMapTest, GradientsArePlacedAsDeclared) {
  on_every_rank_count(test::check_gradient_placements);
}
TEST(LocalMapTest, PaddlesMaskedMeanIsPartial) { on_every_rank_count(test::check_masked_mean); }

TEST(LocalMapTest, PaddlesRuleWrapsWheneverThereIsAMesh) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    const auto x = sample_values({2, 3}, world.rank());
    const LocalMapOptions options{.out_placements = {{Shard(0)}},
                                  .mesh = mesh,
                                  .without_dtensors = WithoutDTensors::wrap_if_mesh};
    const auto y = local_map(identity, options)(x);
    EXPECT_EQ(y.sizes(), (Sizes{2 * world.size(), 3}));
    EXPECT_TRUE(torch::equal(to_local(y), x));
    const auto plain = local_map(identity, {.out_placements = {{Shard(0)}}, .mesh = mesh})(x);
    EXPECT_TRUE(plain.is_same(x));
    const auto none = local_map([](const at::Tensor& t) { return t.dim(); },
                                {.without_dtensors = WithoutDTensors::wrap_if_mesh});
    EXPECT_EQ(none(x), 2);
  });
}

TEST(LocalMapTest, NothingIsCopiedOrSentWhenLayoutsFit) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    const auto x = distribute_tensor(sample_values({12, 4}), mesh, {Shard(0)});
    const void* memory = to_local(x).const_data_ptr();
    const auto mapped = local_map(
        [&](const at::Tensor& t) {
          EXPECT_EQ(t.const_data_ptr(), memory);
          return t;
        },
        {.out_placements = {{Shard(0)}}, .in_placements = {{Shard(0)}}});
    CommDebugMode traffic;
    {
      const auto scope = traffic.record();
      EXPECT_EQ(to_local(mapped(x)).const_data_ptr(), memory);
    }
    EXPECT_EQ(traffic.total_count(), 0);
  });
}

TEST(LocalMapTest, InPlaceOperationsReachTheInput) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    const auto x = distribute_tensor(sample_values({5, 4}), mesh, {Shard(0)});
    local_map([](at::Tensor t) { t.add_(1); }, {})(x);
    EXPECT_TRUE(torch::equal(full_tensor(x), sample_values({5, 4}) + 1));
  });
}

TEST(LocalMapTest, TreesGoInAndComeOut) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    const auto x = distribute_tensor(sample_values({5, 4}, 1), mesh, {Shard(0)});
    const auto y = distribute_tensor(sample_values({5, 4}, 2), mesh, {Replicate()});
    using Result = std::map<std::string, std::pair<at::Tensor, std::optional<Tensors>>>;
    const auto fn = [&](const Batch& batch, const Tensors& list, std::array<at::Tensor, 1>& array,
                        std::int64_t number) {
      EXPECT_FALSE(is_dtensor(batch.tokens) || is_dtensor(list.at(1)) || is_dtensor(array[0]));
      EXPECT_FALSE(batch.mask.has_value());
      EXPECT_EQ(batch.name, "batch");
      return std::tuple(Result{{"a", {batch.tokens + list[0], std::nullopt}},
                               {"b", {list[1] * 2, Tensors{array[0], batch.tokens}}}},
                        number + 1, std::string("text"));
    };
    const auto mapped = local_map(fn, {.out_placements = {{Shard(0)},
                                                          std::nullopt,
                                                          {Replicate()},
                                                          {Replicate()},
                                                          {Shard(0)},
                                                          std::nullopt,
                                                          std::nullopt},
                                       .in_placements = {{Shard(0)},
                                                         std::nullopt,
                                                         std::nullopt,
                                                         {Shard(0)},
                                                         {Replicate()},
                                                         {Replicate()},
                                                         std::nullopt}});
    std::array<at::Tensor, 1> array{y};
    const auto [map, number, text] =
        mapped(Batch{x, std::nullopt, "batch"}, Tensors{x, y}, array, 6);
    EXPECT_TRUE(array[0].is_same(y)) << "the caller's arguments stay as they are";
    EXPECT_EQ(number, 7);
    EXPECT_EQ(text, "text");
    EXPECT_TRUE(torch::equal(full_tensor(map.at("a").first), sample_values({5, 4}, 1) * 2));
    EXPECT_FALSE(map.at("a").second.has_value());
    EXPECT_TRUE(torch::equal(full_tensor(map.at("b").first), sample_values({5, 4}, 2) * 2));
    EXPECT_TRUE(torch::equal(full_tensor(map.at("b").second->at(1)), sample_values({5, 4}, 1)));
    EXPECT_EQ(placements_of(map.at("b").second->at(0)), Placements{Replicate()});
  });
}

TEST(LocalMapTest, TreesOfEveryKindNestAndDifferentiate) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    const auto make = [&](std::int64_t seed) {
      return distribute_tensor(sample_values({5, 4}, seed), mesh, {Shard(0)}).requires_grad_();
    };
    const auto a = make(1);
    const auto b = make(2);
    const auto c = make(3);
    using Inner = std::pair<std::optional<Batch>, std::array<at::Tensor, 2>>;
    using Tree = std::tuple<bool, std::map<std::string, std::vector<Inner>>, double, std::string>;
    const Tree tree{true,
                    {{"z", {Inner{std::nullopt, {c, at::Tensor()}}}},
                     {"m", {Inner{Batch{a, b, "in"}, {b, c}}, Inner{std::nullopt, {a, a}}}}},
                    2.0,
                    "text"};
    // The same tree, with every tensor multiplied; a bool turned around.
    const auto fn = [](Tree t) {
      const double factor = std::get<2>(t);
      for (auto& [key, list] : std::get<1>(t)) {
        for (auto& [batch, pair] : list) {
          if (batch) batch->tokens = batch->tokens * factor;
          for (auto& tensor : pair) {
            if (tensor.defined()) tensor = tensor * tensor;
          }
        }
      }
      std::get<0>(t) = !std::get<0>(t);
      return t;
    };
    const LeafPlacements none = std::nullopt;
    const LeafPlacements rows = {Shard(0)};
    // true; m: tokens, mask, name, b, c; none, a, a; z: none, c, undefined; 2.0; "text".
    const std::vector<LeafPlacements> entries = {none, rows, rows, none, rows, rows, none,
                                                 rows, rows, none, rows, none, none, none};
    const auto mapped = local_map(fn, {.out_placements = entries, .in_placements = entries});
    const Tree result = mapped(tree);
    EXPECT_FALSE(std::get<0>(result));
    const auto& list = std::get<1>(result).at("m");
    const auto values = [](std::int64_t seed) { return sample_values({5, 4}, seed); };
    EXPECT_TRUE(torch::equal(full_tensor(list[0].first->tokens), values(1) * 2));
    EXPECT_TRUE(torch::equal(full_tensor(*list[0].first->mask), values(2)));
    EXPECT_EQ(list[0].first->name, "in");
    EXPECT_TRUE(torch::equal(full_tensor(list[0].second[1]), values(3).square()));
    EXPECT_FALSE(list[1].first.has_value());
    EXPECT_FALSE(std::get<1>(result).at("z")[0].second[1].defined());
    at::Tensor loss = full_tensor(list[0].first->tokens).sum();
    for (const auto& [key, inner] : std::get<1>(result)) {
      for (const auto& [batch, pair] : inner) {
        for (const auto& tensor : pair) {
          if (tensor.defined()) loss = loss + full_tensor(tensor).sum();
        }
      }
    }
    loss.backward();
    EXPECT_TRUE(torch::allclose(full_tensor(a.grad()), 2 + 4 * values(1)));
    EXPECT_TRUE(torch::allclose(full_tensor(b.grad()), 2 * values(2)));
    EXPECT_TRUE(torch::allclose(full_tensor(c.grad()), 4 * values(3)));
  });
}

TEST(LocalMapTest, CallsAnythingThatCanBeCalled) {
  run_ranks(2, [](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    const auto x = distribute_tensor(sample_values({4, 2}), mesh, {Shard(0)});
    const LocalMapOptions rows{.out_placements = {{Shard(0)}}};
    int calls = 0;
    auto counting = local_map([calls](const at::Tensor& t) mutable { return t * ++calls; }, rows);
    (void)counting(x);
    EXPECT_TRUE(torch::equal(full_tensor(counting(x)), sample_values({4, 2}) * 2));
    const std::function<at::Tensor(at::Tensor)> stored = local_map(identity, rows);
    EXPECT_TRUE(is_dtensor(stored(x)));
    const auto moves_only = [](std::unique_ptr<int> value, const at::Tensor& t) {
      return t * *value;
    };
    EXPECT_TRUE(torch::equal(full_tensor(local_map(moves_only, rows)(std::make_unique<int>(3), x)),
                             sample_values({4, 2}) * 3));
    std::int64_t seen = 0;
    local_map([](const at::Tensor& t, std::int64_t& out) { out = t.size(0); }, {})(x, seen);
    EXPECT_EQ(seen, 2);
  });
}

TEST(LocalMapTest, UnevenShardsGiveTheRightShape) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    for (const std::int64_t size : {0, 1, 2, 5, 6, 7, 8, 12}) {
      const auto values = sample_values({size, 4});
      const auto x = distribute_tensor(values, mesh, {Shard(0)});
      const auto mapped =
          local_map([](const at::Tensor& t) { return t * 2; }, {.out_placements = {{Shard(0)}}});
      CommDebugMode traffic;
      at::Tensor y;
      {
        const auto scope = traffic.record();
        y = mapped(x);
      }
      EXPECT_EQ(y.sizes(), values.sizes());
      EXPECT_TRUE(torch::equal(full_tensor(y), values * 2));
      // Known without traffic when all ranks hold the same.
      EXPECT_EQ(traffic.count("all_gather_into_tensor"), size % world.size() == 0 ? 0 : 1) << size;
      EXPECT_EQ(traffic.total_count(), traffic.count("all_gather_into_tensor"));
      if (traffic.total_count() > 0) {
        EXPECT_EQ(traffic.records()[0].cause, "shape of local_map output 0");
      }
    }
  });
}

TEST(LocalMapTest, GivenShapesNeedNoTraffic) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    const auto values = sample_values({5, 4});
    const auto x = distribute_tensor(values, mesh, {Shard(0)});
    const auto pair = [](const at::Tensor& t) { return std::pair(t.clone(), t.t()); };
    const auto mapped = local_map(
        pair, {.out_placements = {{Shard(0)}, {Shard(1)}}, .out_shapes = {{5, 4}, {4, 5}}});
    CommDebugMode traffic;
    std::pair<at::Tensor, at::Tensor> result;
    {
      const auto scope = traffic.record();
      result = mapped(x);
    }
    EXPECT_EQ(traffic.total_count(), 0);
    EXPECT_TRUE(torch::equal(full_tensor(result.first), values));
    EXPECT_TRUE(torch::equal(full_tensor(result.second), values.t()));
  });
}

TEST(LocalMapTest, SizesThatDependOnTheRankAreAskedFor) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    // As many rows as ranks and one, in parts of two: the last ranks have fewer, or none.
    const std::int64_t total = world.size() + 1;
    const std::int64_t chunk = (total + world.size() - 1) / world.size();
    const std::int64_t begin = std::min(total, world.rank() * chunk);
    const std::int64_t end = std::min(total, begin + chunk);
    const auto values = sample_values({total, 3});
    const auto x = distribute_tensor(sample_values({4 * world.size(), 3}), mesh, {Shard(0)});
    const auto fn = [&](const at::Tensor&) { return values.slice(0, begin, end); };
    const auto y = local_map(fn, {.out_placements = {{Shard(0)}}, .out_shapes = {std::nullopt}})(x);
    EXPECT_TRUE(torch::equal(full_tensor(y), values));
  });
}

TEST(LocalMapTest, OtherSizesThanTheInputsAreAskedFor) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    for (const std::int64_t size : {5, 12}) {
      const auto x = distribute_tensor(sample_values({size, 2}), mesh, {Shard(0)});
      // The same number of rows on every rank, whatever they hold.
      const auto fn = [&](const at::Tensor& t) {
        return torch::cat({t.sum(0, true), t.sum(0, true)});
      };
      const auto y = local_map(fn, {.out_placements = {{Shard(0)}}})(x);
      EXPECT_EQ(y.size(0), 2 * world.size());
      const auto columns = local_map(
          [](const at::Tensor& t) {
            return torch::cat({t, t}, 1);
          },
          {.out_placements = {{Shard(0)}}})(x);
      EXPECT_EQ(columns.sizes(), (Sizes{size, 4}));
    }
  });
}

TEST(LocalMapTest, PendingInputsAndOutputsAreHandled) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    const auto values = sample_values({8, 4});
    const auto x = redistribute(distribute_tensor(values, mesh, {Shard(0)}), {Replicate()},
                                {.async_op = true});
    const auto plain = all_reduce(values, ReduceOp::max, mesh, {.async_op = true});
    const auto fn = [&](const at::Tensor& a, const at::Tensor& b) {
      // Reads memory, as functions for plain tensors may.
      EXPECT_EQ(a.const_data_ptr<double>()[5], b.const_data_ptr<double>()[5]);
      return all_reduce(a, ReduceOp::avg, mesh, {.async_op = true});
    };
    const auto y = local_map(fn, {.out_placements = {{Replicate()}}})(x, plain);
    EXPECT_TRUE(torch::allclose(full_tensor(y), values));
    const auto z = local_map(identity, {.out_placements = {{Shard(0)}},
                                        .in_placements = {{Shard(0)}},
                                        .redistribute_inputs = true})(y);
    EXPECT_TRUE(torch::allclose(full_tensor(z), values));
  });
}

/// Compares gradient and second derivative of `sum(f(x)^3)` with those of the plain function.
void check_derivatives(const at::Tensor& values, const at::Tensor& x,
                       const std::function<at::Tensor(const at::Tensor&)>& plain,
                       const std::function<at::Tensor(const at::Tensor&)>& mapped,
                       const std::string& what) {
  SCOPED_TRACE(what);
  const auto expect = values.detach().clone().requires_grad_();
  const auto derive = [](const at::Tensor& input, const at::Tensor& output, const auto& whole) {
    const auto loss = output.pow(3).sum();
    const auto first = torch::autograd::grad({loss}, {input}, {}, true, true)[0];
    const auto second = torch::autograd::grad({whole(first).pow(2).sum()}, {input})[0];
    return std::pair(whole(first).detach(), whole(second));
  };
  const auto same = [](const at::Tensor& t) { return t; };
  const auto [first, second] = derive(expect, plain(expect), same);
  const auto [first_mapped, second_mapped] =
      derive(x, full_tensor(mapped(x)), [](const at::Tensor& t) { return full_tensor(t); });
  EXPECT_TRUE(torch::allclose(first_mapped, first)) << first_mapped << first;
  EXPECT_TRUE(torch::allclose(second_mapped, second)) << second_mapped << second;
}

TEST(LocalMapTest, GradientsFollowThePlacementsTwice) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    const auto values = sample_values({5, 3});
    const auto leaf = [&](const Placements& placements) {
      return distribute_tensor(values, mesh, placements).requires_grad_();
    };
    const auto sine = [](const at::Tensor& t) { return torch::sin(t); };
    check_derivatives(values, leaf({Shard(0)}), sine,
                      local_map(sine, {.out_placements = {{Shard(0)}}}), "S -> S");
    check_derivatives(values, leaf({Replicate()}), sine,
                      local_map(sine, {.out_placements = {{Replicate()}}}), "R -> R");
    check_derivatives(
        values, leaf({Replicate()}), sine,
        local_map(sine, {.out_placements = {{Replicate()}}, .in_grad_placements = {{Replicate()}}}),
        "R -> R, redundantly");
    const auto total = [](const at::Tensor& t) { return torch::sin(t).sum(0); };
    check_derivatives(values, leaf({Shard(0)}), total,
                      local_map(total, {.out_placements = {{Partial()}}}), "S -> P");
    check_derivatives(
        values, leaf({Shard(0)}), total,
        local_map([&](const at::Tensor& t) { return all_reduce(total(t), ReduceOp::sum, mesh); },
                  {.out_placements = {{Replicate()}}}),
        "S -> reduced R");
    check_derivatives(
        values, leaf({Partial()}), sine,
        local_map(
            [&](const at::Tensor& t) { return torch::sin(all_reduce(t, ReduceOp::sum, mesh)); },
            {.out_placements = {{Replicate()}}}),
        "P -> reduced R");
    check_derivatives(values, leaf({Replicate()}), total,
                      local_map(
                          [&](const at::Tensor& t) {
                            return torch::sin(reduce_scatter(t, 0, ReduceOp::avg, mesh)).sum(0);
                          },
                          {.out_placements = {{Partial()}}}),
                      "R -> scattered P");
    const double ranks = static_cast<double>(world.size());
    check_derivatives(values, leaf({Replicate()}), sine,
                      local_map(
                          [&](const at::Tensor& t) {
                            return torch::sin(t) * (static_cast<double>(world.rank()) * 2 + 1) /
                                   ranks;
                          },
                          {.out_placements = {{Partial(ReduceOp::avg)}}}),
                      "R -> P(avg)");
    check_derivatives(
        values, leaf({Partial(ReduceOp::avg)}), sine,
        local_map(
            [&](const at::Tensor& t) { return torch::sin(all_reduce(t, ReduceOp::avg, mesh)); },
            {.out_placements = {{Replicate()}}}),
        "P(avg) -> R");
    check_derivatives(
        values, leaf({Partial(ReduceOp::max)}), sine,
        local_map(
            [&](const at::Tensor& t) { return torch::sin(all_reduce(t, ReduceOp::max, mesh)); },
            {.out_placements = {{Replicate()}}}),
        "P(max) -> R");
  });
}

TEST(LocalMapTest, RandomProgramsMatchThePlainCall) {
  constexpr std::uint64_t kPrograms = 40;
  on_every_rank_count([](World& world) {
    const auto first = static_cast<std::uint64_t>(world.size()) * 1000;
    test::check_random_programs(world, first, kPrograms);
  });
}

}  // namespace
}  // namespace tessera
