#include <gmock/gmock.h>

#include <torch/torch.h>

#include "support/rank_test.h"
#include "tensor/local_map_cases.h"
#include "tessera/base/concat.h"
#include "tessera/comm/collectives.h"
#include "tessera/comm/traffic.h"
#include "tessera/tensor/dtensor.h"
#include "tessera/tensor/local_map.h"

namespace tessera {
namespace {

using test::expect_refused;
using test::identity;
using test::on_every_rank_count;
using test::sample_values;
using Tensors = std::vector<at::Tensor>;

at::Tensor rows(const DeviceMesh& mesh) {
  return distribute_tensor(sample_values({12, 4}), mesh, {Shard(0)});
}

TEST(LocalMapErrorTest, InputsOnDifferentMeshes) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()}, {"a"});
    const auto other = init_device_mesh("cpu", {world.size()}, {"b"});
    const auto add = [](const at::Tensor& x, const at::Tensor& y) { return x + y; };
    const LocalMapOptions options{.out_placements = {{Shard(0)}}};
    expect_refused([&] { (void)local_map(add, options)(rows(mesh), rows(other)); },
                   {"local_map: input 1, f64[12,4][S(0)], is on DeviceMesh([b=",
                    "but inputs before it are on DeviceMesh([a=", "redistribute it first"});
    expect_refused(
        [&] {
          (void)local_map(identity, {.out_placements = {{Shard(0)}}, .mesh = mesh})(rows(other));
        },
        {"input 0", "is on DeviceMesh([b=", "but the mesh given is DeviceMesh([a="});
  });
}

TEST(LocalMapErrorTest, InputPlacements) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    const auto x = rows(mesh);
    const auto call = [&](std::vector<LeafPlacements> in, std::vector<LeafPlacements> grad = {},
                          bool redistribute_inputs = false) {
      (void)local_map(identity, {.out_placements = {{Shard(0)}},
                                 .in_placements = std::move(in),
                                 .in_grad_placements = std::move(grad),
                                 .redistribute_inputs = redistribute_inputs})(x);
    };
    expect_refused(
        [&] {
          call({{Shard(0)}, {Shard(0)}});
        },
        {"local_map: in_placements length 2 does not match the number of input args 1"});
    expect_refused(
        [&] {
          call({}, {{Shard(0)}, {Shard(0)}});
        },
        {"in_grad_placements length 2 does not match the number of input args 1"});
    expect_refused([&] { call({std::nullopt}); },
                   {"DTensor input 0, f64[12,4][S(0)], expects placements but received None"});
    expect_refused([&] { call({}, {std::nullopt}); },
                   {"DTensor input 0", "expects in grad placements but received None"});
    expect_refused([&] { call({{Shard(1)}}); },
                   {"input 0 has mismatched placements: it is [12,4][S(0)] on",
                    "in_placements ask for [12,4][S(1)] on", "set redistribute_inputs=True"});
    expect_refused(
        [&] {
          call({{Shard(0), Shard(1)}}, {}, true);
        },
        {"local_map: in_placements: 2 placement(s) [S(0),S(1)] given for"});
    expect_refused([&] { call({{Shard(2)}}, {}, true); },
                   {"local_map: in_placements: ", "S(2)", "shard dims -2 to 1"});
    expect_refused([&] { call({}, {{Shard(5)}}); }, {"local_map: in_grad_placements: ", "S(5)"});
    call({{Shard(-2)}});  // The same as Shard(0).
  });
}

TEST(LocalMapErrorTest, GradientsThatCannotBePlacedSo) {
  for (const std::int64_t ranks : {2, 3, 4}) {
    run_ranks(ranks, [](World& world) {
      const auto mesh = init_device_mesh("cpu", {world.size()});
      const auto declared = [&](const Placement& input, const Placement& gradient) {
        const auto x = distribute_tensor(sample_values({12, 4}), mesh, {input}).requires_grad_();
        (void)local_map(identity,
                        {.out_placements = {{input}}, .in_grad_placements = {{gradient}}})(x);
      };
      for (const Placement& other : {Placement(Replicate()), Placement(Partial()),
                                     Placement(Shard(1)), Placement(StridedShard(0, 2))}) {
        expect_refused([&] { declared(Shard(0), other); },
                       {"local_map: in_grad_placements: the gradient of input 0, [12,4][S(0)] on [",
                        concat("cannot be ", other, " along mesh dim 0: every rank computes that "),
                        "of its own part; write S(0) there, as the tensor is"});
      }
      for (const Placement& input : {Placement(Replicate()), Placement(Partial())}) {
        for (const Placement& other : {Placement(Shard(0)), Placement(Partial(ReduceOp::max)),
                                       Placement(Partial(ReduceOp::product))}) {
          expect_refused(
              [&] { declared(input, other); },
              {concat("cannot be ", other, " along mesh dim 0: every rank computes one "),
               "as large as the tensor; write R there if all compute the same, P(sum) or "
               "P(avg) if theirs add up"});
        }
        declared(input, Replicate());
        declared(input, Partial());
        declared(input, Partial(ReduceOp::avg));
      }
      declared(Shard(0), Shard(-2));
      // What counts is how the function gets the argument.
      const auto x = distribute_tensor(sample_values({12, 4}), mesh, {Shard(0)});
      const auto moved = [&](const Placement& gradient) {
        (void)local_map(identity, {.out_placements = {{Replicate()}},
                                   .in_placements = {{Replicate()}},
                                   .in_grad_placements = {{gradient}},
                                   .redistribute_inputs = true})(x);
      };
      moved(Partial());
      expect_refused([&] { moved(Shard(0)); },
                     {"the gradient of input 0, [12,4][R] on [", "cannot be S(0)"});
    });
  }
  run_ranks(1, [](World&) {
    // Along a mesh dim of one rank everything is the same.
    const auto mesh = init_device_mesh("cpu", {1});
    (void)local_map(identity, {.out_placements = {{Shard(0)}},
                               .in_grad_placements = {{Replicate()}}})(rows(mesh));
  });
}

TEST(LocalMapErrorTest, NothingMovesBeforeEverythingIsChecked) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    const auto x = rows(mesh);
    const auto add = [](const at::Tensor& a, const at::Tensor& b) { return a + b; };
    CommDebugMode traffic;
    const auto scope = traffic.record();
    // The first argument would have to move.
    LocalMapOptions options{.out_placements = {{Replicate()}},
                            .in_placements = {{Replicate()}, std::nullopt},
                            .redistribute_inputs = true};
    expect_refused([&] { (void)local_map(add, options)(x, x); }, {"expects placements but"});
    options.in_placements = {{Replicate()}, {Replicate()}};
    options.in_grad_placements = {{Replicate()}, {Shard(7)}};
    expect_refused([&] { (void)local_map(add, options)(x, x); }, {"in_grad_placements: "});
    options.in_grad_placements = {};
    options.out_placements = {{Replicate(), Replicate()}};
    expect_refused([&] { (void)local_map(add, options)(x, x); },
                   {"out_placements: 2 placement(s)"});
    EXPECT_EQ(traffic.total_count(), 0);
  });
}

TEST(LocalMapErrorTest, NonTensorInputsWithPlacements) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    const auto first = [](const at::Tensor& x, const auto&...) { return x; };
    const LocalMapOptions options{.out_placements = {{Shard(0)}},
                                  .in_placements = {{Shard(0)}, {Shard(0)}}};
    const auto mapped = local_map(first, options);
    const auto x = rows(mesh);
    expect_refused([&] { (void)mapped(x, true); },
                   {"local_map: Non-Tensor input 1 (a bool) expects None placements but received "
                    "[S(0)]; write std::nullopt"});
    expect_refused([&] { (void)mapped(x, 1); }, {"Non-Tensor input 1 (a number) expects None"});
    expect_refused([&] { (void)mapped(x, "s"); }, {"Non-Tensor input 1 (a string) expects None"});
    expect_refused([&] { (void)mapped(x, mesh); }, {"Non-Tensor input 1 (an object) expects None"});
    expect_refused([&] { (void)mapped(x, at::Tensor()); },
                   {"Non-Tensor input 1 (nothing) expects None"});
    const LocalMapOptions gradients{.out_placements = {{Shard(0)}},
                                    .in_grad_placements = {{Shard(0)}, {Shard(0)}}};
    expect_refused([&] { (void)local_map(first, gradients)(x, 1); },
                   {"Non-Tensor input 1 (a number) expects None in grad placements but received"});
  });
}

TEST(LocalMapErrorTest, NumberOfOutputs) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    const auto three = [](const at::Tensor& x) { return Tensors{x, x, x}; };
    expect_refused(
        [&] {
          (void)local_map(three, {.out_placements = {{Shard(0)}, {Shard(0)}}})(rows(mesh));
        },
        {"local_map requires one PlacementType be provided for each output value, received 2 "
         "out_placements but 3 is expected"});
    expect_refused(
        [&] {
          (void)local_map(three, {.out_placements = {{Shard(0)}},
                                  .out_shapes = {{12, 4}, {12, 4}}})(rows(mesh));
        },
        {"2 out_shapes given for 3 output value(s)"});
  });
}

TEST(LocalMapErrorTest, KindsOfOutputs) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    const auto x = rows(mesh);
    const auto both = [](const at::Tensor& t) { return std::pair(t, true); };
    expect_refused([&] { (void)local_map(both, {.out_placements = {{Shard(0)}}})(x); },
                   {"local_map: Non-tensor output 1 (a bool) expects None placements but received "
                    "[S(0)]"});
    expect_refused([&] { (void)local_map(both, {.out_placements = {std::nullopt}})(x); },
                   {"local_map: tensor output 0, f64[", "expects placements but received None"});
    expect_refused([&] { (void)local_map(identity, {})(x); }, {"tensor output 0"});
    const auto wraps = [&](const at::Tensor&) { return x; };
    expect_refused([&] { (void)local_map(wraps, {.out_placements = {{Shard(0)}}})(x); },
                   {"torch.Tensor output expected but received a DTensor: output 0 is "
                    "f64[12,4][S(0)]"});
  });
}

TEST(LocalMapErrorTest, DeclarationsThatCannotBeTrue) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    const auto x = rows(mesh);
    const auto declared = [&](const auto& fn, LeafPlacements placements) {
      (void)local_map(fn, {.out_placements = {std::move(placements)}})(x);
    };
    CommDebugMode traffic;
    const auto scope = traffic.record();
    expect_refused([&] { declared(identity, {Shard(2)}); },
                   {"local_map: output 0, f64[", "cannot be S(2): it has 2 dim(s)"});
    expect_refused(
        [&] {
          declared(identity, {Shard(0), Replicate()});
        },
        {"local_map: out_placements: 2 placement(s) [S(0),R] given for"});
    const auto integers = [](const at::Tensor& t) { return t.to(torch::kLong); };
    expect_refused([&] { declared(integers, {Partial(ReduceOp::avg)}); },
                   {"cannot be P(avg): whole numbers have no average"});
    const auto complex = [](const at::Tensor& t) { return t.to(torch::kComplexDouble); };
    expect_refused([&] { declared(complex, {Partial(ReduceOp::max)}); },
                   {"cannot be P(max): complex numbers have no order"});
    expect_refused([&] { declared(identity, {Partial(ReduceOp::bor)}); },
                   {"cannot be P(bor): bits are reduced of integers and bools only"});
    EXPECT_EQ(traffic.total_count(), 0);
  });
  EXPECT_THAT(
      test::failure_of(
          4,
          [](World&) {
            const auto mesh = init_device_mesh("cpu", {2, 2});
            const auto x = distribute_tensor(sample_values({4, 4}), mesh, {Shard(0), Replicate()});
            (void)local_map(identity, {.out_placements = {{Partial(), Partial(ReduceOp::max)}}})(x);
          }),
      testing::HasSubstr("Mixed Partial reduce types"));
}

TEST(LocalMapErrorTest, OutputsOnAnotherDevice) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    const auto elsewhere = [](const at::Tensor& t) { return torch::empty_like(t, at::kMeta); };
    expect_refused(
        [&] { (void)local_map(elsewhere, {.out_placements = {{Shard(0)}}})(rows(mesh)); },
        {"local_map: output 0: a tensor on meta given for DeviceMesh([", "move it to cpu first"});
  });
}

TEST(LocalMapErrorTest, GivenShapesThatCannotBePlacedSo) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    expect_refused(
        [&] {
          (void)local_map(identity,
                          {.out_placements = {{Shard(1)}}, .out_shapes = {{12}}})(rows(mesh));
        },
        {"local_map: out_shapes: ", "placement S(1) given for a tensor of shape [12]"});
  });
}

TEST(LocalMapErrorTest, MeshesOfMoreDimsThanBits) {
  run_ranks(1, [](World&) {
    const auto mesh = init_device_mesh("cpu", std::vector<std::int64_t>(65, 1));
    const Placements copies(65, Replicate());
    const auto x = distribute_tensor(sample_values({2}), mesh, copies).requires_grad_();
    expect_refused(
        [&] {
          (void)local_map(identity,
                          {.out_placements = {copies}, .in_grad_placements = {copies}})(x);
        },
        {"local_map: a mesh of more than 64 dims given; flatten some of them"});
  });
}

TEST(LocalMapErrorTest, ShapesThatDoNotFit) {
  for (const std::int64_t ranks : {2, 3, 4}) {
    run_ranks(ranks, [](World& world) {
      const auto mesh = init_device_mesh("cpu", {world.size()});
      const auto x = rows(mesh);
      // Whatever this rank holds, it is not a part of 100 rows.
      expect_refused(
          [&] {
            (void)local_map(identity,
                            {.out_placements = {{Shard(0)}}, .out_shapes = {{100, 4}}})(x);
          },
          {"local_map: output 0: a local tensor of shape [", "in [100,4][S(0)] on"});
    });
  }
}

TEST(LocalMapErrorTest, CopiesThatDiffer) {
  for (const std::int64_t ranks : {2, 3, 4}) {
    run_ranks(ranks, [](World& world) {
      const auto mesh = init_device_mesh("cpu", {world.size()});
      const auto x = rows(mesh);
      const LocalMapOptions options{.out_placements = {{Replicate()}}, .check_outputs = true};
      const auto last_differs = [&](const at::Tensor&) {
        return torch::full({3}, world.rank() == world.size() - 1 ? 1 : 0);
      };
      expect_refused(
          [&] { (void)local_map(last_differs, options)(x); },
          {concat("local_map: output 0, declared [R] on DeviceMesh([", world.size(), "], cpu), "),
           concat("differs between ranks that should hold copies: rank ", world.size() - 1,
                  " (i64[3]) from rank 0 (i64[3]); ")});
      const auto other_shape = [&](const at::Tensor&) { return torch::zeros({world.rank()}); };
      expect_refused([&] { (void)local_map(other_shape, options)(x); },
                     {"rank 1 (f32[1]) from rank 0 (f32[0])"});
      const auto equal = [&](const at::Tensor&) { return torch::ones({3}); };
      EXPECT_TRUE(torch::equal(full_tensor(local_map(equal, options)(x)), torch::ones({3})));
      const LocalMapOptions shapes{
          .out_placements = {{Shard(0)}}, .out_shapes = {{12, 4}}, .check_outputs = true};
      EXPECT_TRUE(
          torch::equal(full_tensor(local_map(identity, shapes)(x)), sample_values({12, 4})));
    });
  }
}

TEST(LocalMapErrorTest, CheckedOutputsAreOneCollective) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    const auto x = distribute_tensor(sample_values({7, 4}), mesh, {Shard(0)});
    // Copies, parts of uneven size, a sum that is on its way, and what is no tensor.
    const auto fn = [&](const at::Tensor& t) {
      return std::tuple(torch::ones({3}), t * 2,
                        all_reduce(t.sum(), ReduceOp::sum, mesh, {.async_op = true}), 5);
    };
    const auto mapped =
        local_map(fn, {.out_placements = {{Replicate()}, {Shard(0)}, {Replicate()}, std::nullopt},
                       .check_outputs = true});
    CommDebugMode traffic;
    const auto result = [&] {
      const auto scope = traffic.record();
      return mapped(x);
    }();
    EXPECT_EQ(traffic.count("all_gather_object"), 1);
    EXPECT_EQ(traffic.count("all_reduce"), 1);
    EXPECT_EQ(traffic.total_count(), 2);
    EXPECT_EQ(traffic.records().back().cause, "local_map check_outputs");
    EXPECT_TRUE(torch::equal(full_tensor(std::get<1>(result)), sample_values({7, 4}) * 2));
    EXPECT_TRUE(torch::allclose(full_tensor(std::get<2>(result)), sample_values({7, 4}).sum()));
  });
}

TEST(LocalMapErrorTest, CheckedOutputsThatOneRankRefusesAreRefusedByAll) {
  for (const std::int64_t ranks : {2, 3, 4}) {
    run_ranks(ranks, [](World& world) {
      const auto mesh = init_device_mesh("cpu", {world.size()});
      const auto x = rows(mesh);
      const bool is_last = world.rank() + 1 == world.size();
      const auto refused_there = [&](const std::string& what) {
        const auto there =
            concat("local_map: what rank ", world.size() - 1, " returns is refused ", "there: ");
        return is_last ? what : there + what;
      };
      const LocalMapOptions options{.out_placements = {{Shard(0)}}, .check_outputs = true};
      const auto list = [&](const at::Tensor& t) {
        return Tensors(static_cast<std::size_t>(is_last ? 3 : 2), t);
      };
      expect_refused(
          [&] { (void)local_map(list, options)(x); },
          {concat("local_map: rank ", world.size() - 1, " returns 3 output value(s) (a "),
           "tensor, a tensor, a tensor), but rank 0 returns 2 output value(s) (a tensor, "
           "a tensor); all ranks must return the same tree"});
      const LocalMapOptions two{.out_placements = {{Shard(0)}, {Shard(0)}}, .check_outputs = true};
      expect_refused([&] { (void)local_map(list, two)(x); },
                     {refused_there("local_map requires one PlacementType be provided for each "
                                    "output value, received 2 out_placements but 3 is expected")});
      const auto flat = [&](const at::Tensor& t) { return is_last ? t.sum() : t; };
      expect_refused([&] { (void)local_map(flat, options)(x); },
                     {refused_there("local_map: output 0, f64[] (plain), cannot be S(0)")});
      const auto none = [&](const at::Tensor& t) { return is_last ? at::Tensor() : t; };
      expect_refused([&] { (void)local_map(none, options)(x); },
                     {refused_there("local_map: Non-tensor output 0 (nothing) expects None")});
      const auto wide = [&](const at::Tensor& t) { return is_last ? t.unsqueeze(0) : t; };
      expect_refused([&] { (void)local_map(wide, options)(x); },
                     {"local_map: output 0: Inconsistent tensor metadata: rank ",
                      "parts of one tensor have the same number of dims"});
      const LocalMapOptions given{
          .out_placements = {{Shard(0)}}, .out_shapes = {{13, 4}}, .check_outputs = true};
      expect_refused(
          [&] { (void)local_map(identity, given)(x); },
          {"local_map: output 0: Inconsistent tensor metadata: rank ", "in [13,4][S(0)]"});
      // All were refused by all, so they still are in step.
      barrier(mesh);
    });
  }
}

TEST(LocalMapErrorTest, CopiesAreComparedAlongTheirMeshDimsOnly) {
  run_ranks(4, [](World& world) {
    const auto mesh = init_device_mesh("cpu", {2, 2});
    const auto x = distribute_tensor(sample_values({4, 4}), mesh, {Shard(0), Replicate()});
    const LocalMapOptions options{.out_placements = {{Shard(0), Replicate()}},
                                  .check_outputs = true};
    EXPECT_TRUE(torch::equal(full_tensor(local_map(identity, options)(x)), sample_values({4, 4})));
    const auto wrong = [&](const at::Tensor& t) { return world.rank() == 3 ? t + 1 : t; };
    expect_refused([&] { (void)local_map(wrong, options)(x); },
                   {"rank 3 (f64[2,4]) from rank 2 (f64[2,4])"});
  });
}

TEST(LocalMapErrorTest, PaddlesRuleNeedsAMesh) {
  run_ranks(2, [](World&) {
    const auto x = sample_values({2, 2});
    expect_refused(
        [&] {
          (void)local_map(identity, {.out_placements = {{Shard(0)}},
                                     .without_dtensors = WithoutDTensors::wrap_if_mesh})(x);
        },
        {"local_map: out_placements given, but neither a DTensor nor a mesh; pass .mesh"});
  });
}

TEST(LocalMapErrorTest, RanksOutsideOfTheMesh) {
  run_ranks(3, [](World& world) {
    const auto mesh = init_device_mesh("cpu", {2});
    const auto x = distribute_tensor(sample_values({4, 2}), mesh, {Shard(0)});
    const auto mapped = local_map(identity, {.out_placements = {{Shard(0)}}});
    if (world.rank() < 2) {
      EXPECT_EQ(mapped(x).size(0), 4);
    } else {
      expect_refused([&] { (void)mapped(x); }, {"local_map: rank 2 is outside of DeviceMesh([2]"});
    }
  });
}

TEST(LocalMapErrorTest, GradientsThatAreNotDefined) {
  run_ranks(2, [](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    const auto x = rows(mesh).requires_grad_();
    const auto y = local_map([](const at::Tensor& t) { return t.sum(); },
                             {.out_placements = {{Partial(ReduceOp::max)}}})(x);
    expect_refused([&] { full_tensor(y).backward(); },
                   {"local_map: the gradient of an output that is P(max) cannot be handed out"});
    const auto product =
        distribute_tensor(sample_values({2}), mesh, {Partial(ReduceOp::product)}).requires_grad_();
    const auto z = local_map(identity, {.out_placements = {{Shard(0)}}})(product);
    expect_refused([&] { full_tensor(z).sum().backward(); },
                   {"the gradient of an input that is P(product) is not defined"});
  });
}

}  // namespace
}  // namespace tessera
