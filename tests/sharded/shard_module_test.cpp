#include <type_traits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/torch.h>

#include "sharded/refusal.h"
#include "sharded/sharded_cases.h"
#include "sharded/training_cases.h"
#include "support/rank_test.h"
#include "tessera/nn/hooked.h"
#include "tessera/nn/replaceable.h"
#include "tessera/sharded/budget_planner.h"
#include "tessera/sharded/embedding_bag.h"
#include "tessera/sharded/shard_parameter.h"
#include "tessera/sharded/sharding_plan.h"
#include "tessera/tensor/dtensor.h"

namespace tessera::sharded {
namespace {

using test::counted;
using test::on_every_rank_count;
using test::refusal;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Key;

// Other kinds than these do not compile.
static_assert(!std::is_constructible_v<PlanEntry, int>);
static_assert(!std::is_constructible_v<decltype(ShardingPlan::output_plan)::mapped_type,
                                       std::shared_ptr<const Sharder>>);

struct NetImpl : torch::nn::Module {
  NetImpl() {
    fc1 = register_module("fc1", nn::Hooked<torch::nn::Linear>(4, 6));
    fc2 = register_module("fc2", torch::nn::Linear(6, 4));
    body = register_module("body", torch::nn::Sequential(torch::nn::Linear(4, 8), torch::nn::ReLU(),
                                                         torch::nn::Linear(8, 2)));
    scale = register_buffer("scale", torch::ones({4}));
  }
  at::Tensor forward(const at::Tensor& x) { return body->forward(fc2(fc1(x)) * scale); }

  nn::Hooked<torch::nn::Linear> fc1{nullptr};
  torch::nn::Linear fc2{nullptr};
  torch::nn::Sequential body{nullptr};
  at::Tensor scale;
};

ChunkShardingSpec over(std::int64_t dim, const World& world) {
  return ChunkShardingSpec::over(dim, world.group().ranks());
}

bool is_untouched(const torch::nn::Module& module) {
  for (const auto& parameter : module.parameters()) {
    if (is_dtensor(parameter)) return false;
  }
  return true;
}

TEST(ShardParameterTest, ChangesTheParameterWhereverItIsHeld) {
  on_every_rank_count([](World& world) {
    torch::nn::Linear linear(6, 5);
    const at::Tensor held = linear->weight;
    const at::Tensor values = counted({5, 6});
    const torch::NoGradGuard no_grad;
    const std::int64_t root = world.size() - 1;
    linear->weight.copy_(world.rank() == root ? values : -values);
    linear->weight.mutable_grad() = world.rank() == root ? values * 2 : values.clone();
    shard_parameter(*linear, "weight", over(0, world), root);
    EXPECT_TRUE(linear->weight.is_same(held));
    EXPECT_TRUE(linear->named_parameters()["weight"].is_same(held));
    EXPECT_TRUE(held.requires_grad());
    EXPECT_EQ(placements_of(held), Placements{Shard(0)});
    EXPECT_TRUE(torch::equal(full_tensor(held), values));
    EXPECT_EQ(placements_of(held.grad()), Placements{Shard(0)});
    EXPECT_TRUE(torch::equal(full_tensor(held.grad()), values * 2));
    EXPECT_FALSE(is_dtensor(linear->bias));
  });
}

TEST(ShardParameterTest, TakesBuffersGridsAndFewerRanks) {
  run_ranks(4, [](World& world) {
    torch::nn::BatchNorm1d norm(6);
    shard_parameter(*norm, "running_mean", over(0, world));
    EXPECT_EQ(placements_of(norm->running_mean), Placements{Shard(0)});

    torch::nn::Linear linear(4, 6);
    const at::Tensor whole = linear->weight.detach().clone();
    std::vector<ShardMetadata> quarters;
    for (std::int64_t i = 0; i < 4; ++i) {
      quarters.emplace_back(std::vector<std::int64_t>{i / 2 * 3, i % 2 * 2},
                            std::vector<std::int64_t>{3, 2}, RankDevice(3 - i));
    }
    shard_parameter(*linear, "weight", EnumerableShardingSpec(quarters), 0);
    EXPECT_EQ(placements_of(linear->weight), (Placements{Shard(0), Shard(1)}));
    EXPECT_EQ(mesh_of(linear->weight).shape().ranks(), (std::vector<std::int64_t>{3, 2, 1, 0}));
    const auto source = all_gather(whole.unsqueeze(0), 0, world.group())[0];
    EXPECT_TRUE(torch::equal(full_tensor(linear->weight.detach()), source));

    // Two ranks that are not the source hold it; the others hold nothing.
    shard_parameter(*linear, "bias", ChunkShardingSpec::over(0, {2, 1}), 3);
    EXPECT_EQ(to_local(linear->bias.detach()).numel(),
              world.rank() == 1 || world.rank() == 2 ? 3 : 0);
  });
}

TEST(ShardParameterTest, RefusesOnAllRanksAndChangesNothing) {
  run_ranks(2, [](World& world) {
    NetImpl net;
    const auto refused = [&](torch::nn::Module& module, const std::string& name,
                             const ShardingSpec& spec, std::int64_t src_rank = 0) {
      auto text = refusal(world, [&] { shard_parameter(module, name, spec, src_rank); });
      EXPECT_TRUE(is_untouched(net));
      return text;
    };
    const bool last = world.rank() == 1;
    EXPECT_THAT(
        refused(*net.fc2, "wieght", over(0, world)),
        HasSubstr("shard_parameter: torch::nn::Linear has no attribute `wieght`; its tensors "
                  "are [weight, bias]"));
    EXPECT_THAT(refused(net, "fc2", over(0, world)),
                AllOf(HasSubstr("Net.fc2 to be a Tensor, but found torch::nn::Linear"),
                      HasSubstr("shard_parameter: Expected ")));
    torch::nn::Linear strided(4, 4);
    strided->weight.set_data(torch::zeros({4, 4}).t());
    EXPECT_THAT(refused(*strided, "weight", over(0, world)),
                HasSubstr("param: weight is not a contiguous Tensor"));
    EXPECT_THAT(refused(*net.fc2, "weight", over(0, world), last ? 1 : 0),
                HasSubstr("src_rank=0 on rank: 0 does not match with src_rank=1 on rank: 1"));
    EXPECT_THAT(refused(*net.fc2, "weight", over(last ? 1 : 0, world)),
                HasSubstr("does not match with sharding_spec="));
    EXPECT_THAT(
        refused(*net.fc2, last ? "bias" : "weight", over(0, world)),
        HasSubstr("param=weight float32[4,6] requires_grad to [4,6][S(0)] on [2] on rank: 0 "
                  "does not match with param=bias"));
    EXPECT_THAT(refused(*net.fc2, "weight", ChunkShardingSpec::over(0, {0, 1, 0, 1})),
                HasSubstr("param: weight cannot be placed as ChunkShardingSpec(dim=0, "));
    EXPECT_THAT(refused(*net.fc2, "weight", ChunkShardingSpec::over(0, {0, 2})),
                HasSubstr("Global rank 2 does not exist in input process group world"));
    // One rank's mistake is everybody's.
    const std::string text = refused(*net.fc2, last ? "nothing" : "weight", over(0, world));
    EXPECT_THAT(text, HasSubstr("has no attribute `nothing`"));
    if (!last) {
      EXPECT_THAT(text, HasSubstr("rank 1 was called with something wrong"));
    }
    shard_parameter(*net.fc2, "weight", over(0, world));
    EXPECT_THAT(refusal(world, [&] { shard_parameter(*net.fc2, "weight", over(0, world)); }),
                HasSubstr("param: weight is a DTensor already"));
  });
}

TEST(ShardModuleTest, AnMlpByColumnsAndRowsTrainsAsThePlainOne) {
  on_every_rank_count(test::check_sharded_mlp);
}

TEST(ShardModuleTest, AShardedEmbeddingBagTrainsAsThePlainOne) {
  on_every_rank_count(test::check_sharded_embedding);
}

TEST(ShardModuleTest, PatternsStandForManyAndAPathGoesBeforeThem) {
  run_ranks(2, [](World& world) {
    NetImpl net;
    shard_module(net, {.plan = {{"**.weight", over(0, world)}, {"fc2.weight", over(1, world)}}});
    EXPECT_EQ(placements_of(net.fc1->weight), Placements{Shard(0)});
    EXPECT_EQ(placements_of(net.fc2->weight), Placements{Shard(1)});
    const auto names = net.named_parameters();
    EXPECT_EQ(placements_of(names["body.0.weight"]), Placements{Shard(0)});
    EXPECT_EQ(placements_of(names["body.2.weight"]), Placements{Shard(0)});
    EXPECT_EQ(placements_of(names["body.2.bias"]), Placements{Replicate()});
    EXPECT_EQ(placements_of(net.scale), Placements{Replicate()});
    const at::Tensor x =
        distribute_tensor(torch::ones({3, 4}), mesh_of(net.fc1->weight), {Replicate()});
    EXPECT_EQ(net.forward(x).sizes(), (std::vector<std::int64_t>{3, 2}));
  });
}

TEST(ShardModuleTest, APathThatIsNamedSettlesWhatPatternsSayAboutIt) {
  run_ranks(2, [](World& world) {
    for (const std::int64_t dim : {0, 1}) {
      NetImpl net;
      shard_module(net, {.plan = {{"*2.weight", over(0, world)},
                                  {"fc*.weight", over(1, world)},
                                  {"fc2.weight", over(dim, world)}}});
      EXPECT_EQ(placements_of(net.fc2->weight), Placements{Shard(dim)});
      EXPECT_EQ(placements_of(net.fc1->weight), Placements{Shard(1)});
    }
  });
}

TEST(ShardModuleTest, WhatWasReplicatedMayBeShardedLater) {
  on_every_rank_count([](World& world) {
    NetImpl net;
    shard_module(net, {.plan = {{"fc1.weight", over(0, world)}}});
    const at::Tensor weight = net.fc2->weight;
    const at::Tensor values = full_tensor(weight.detach());
    ASSERT_EQ(placements_of(weight), Placements{Replicate()});
    weight.mutable_grad() = (weight * 2).detach();
    shard_module(net, {.plan = {{"fc2.weight", over(1, world)}}});
    EXPECT_EQ(placements_of(weight), Placements{Shard(1)});
    EXPECT_TRUE(torch::equal(full_tensor(weight.detach()), values));
    EXPECT_EQ(placements_of(weight.grad()), Placements{Shard(1)});
    EXPECT_TRUE(torch::equal(full_tensor(weight.grad()), values * 2));
    EXPECT_EQ(placements_of(net.fc1->weight), Placements{Shard(0)});
  });
}

TEST(ShardParameterTest, RefusesReplicasThatNotAllMembersHave) {
  run_ranks(3, [](World& world) {
    torch::nn::Linear linear(4, 4);
    shard_module(*linear, {.plan = {}}, 0,
                 world.rank() == 2 ? world.group({2}) : world.group({0, 1}));
    EXPECT_THAT(refusal(world, [&] { shard_parameter(*linear, "weight", over(0, world)); }),
                HasSubstr("param: weight is replicated on "));
  });
}

TEST(ShardModuleTest, LeavesTheRestAloneIfAskedTo) {
  run_ranks(2, [](World& world) {
    NetImpl net;
    shard_module(net, {.plan = {{"fc1.weight", over(0, world)}}}, 0, {}, {.replicate_rest = false});
    EXPECT_TRUE(is_dtensor(net.fc1->weight));
    EXPECT_FALSE(is_dtensor(net.fc1->bias));
    EXPECT_FALSE(is_dtensor(net.scale));
  });
}

struct WeightImpl : torch::nn::Module {
  explicit WeightImpl(const at::Tensor& its_weight)
      : weight(register_parameter("weight", its_weight)) {}
  at::Tensor weight;
};

TEST(ShardModuleTest, TiedParametersAreShardedOnce) {
  run_ranks(2, [](World& world) {
    struct BothImpl : torch::nn::Module {
      BothImpl() {
        const at::Tensor weight = torch::ones({4, 4});
        a = register_module("a", std::make_shared<WeightImpl>(weight));
        b = register_module("b", std::make_shared<WeightImpl>(weight));
      }
      std::shared_ptr<WeightImpl> a;
      std::shared_ptr<WeightImpl> b;
    };
    BothImpl both;
    const auto refused = refusal(world, [&] {
      shard_module(both, {.plan = {{"a.weight", over(0, world)}, {"b.weight", over(1, world)}}});
    });
    EXPECT_THAT(refused, HasSubstr("'a.weight' and 'b.weight' are the same tensor, but the plan"));
    EXPECT_TRUE(is_untouched(both));
    shard_module(both, {.plan = {{"*.weight", over(0, world)}}});
    EXPECT_TRUE(both.a->weight.is_same(both.b->weight));
    EXPECT_EQ(placements_of(both.b->weight), Placements{Shard(0)});
  });
}

TEST(ShardModuleTest, OutputsAreReshardedAndReturnedAsLocalTensors) {
  on_every_rank_count([](World& world) {
    NetImpl plain;
    NetImpl net;
    {
      const torch::NoGradGuard no_grad;
      const auto own = net.named_parameters();
      for (auto& item : plain.named_parameters()) {
        item.value().copy_(torch::sin(counted(item.value().sizes().vec())));
        own[item.key()].copy_(item.value());
      }
    }
    shard_module(net, {.plan = {{"fc1.weight", over(0, world)}},
                       .output_plan = {{"fc1", over(1, world)}, {"body", over(0, world)}},
                       .return_local_tensor = {"body"}});
    const at::Tensor x = torch::cos(counted({5, 4}));
    const at::Tensor input = distribute_tensor(x, mesh_of(net.fc1->weight), {Replicate()});
    const at::Tensor hidden = net.fc1(input);
    EXPECT_EQ(placements_of(hidden), Placements{Shard(1)});
    EXPECT_TRUE(torch::allclose(full_tensor(hidden.detach()), plain.fc1(x)));

    const at::Tensor local = net.forward(input);
    EXPECT_FALSE(is_dtensor(local));
    const Extent own = chunk_extent(5, world.size(), world.rank());
    const at::Tensor expected = plain.forward(x);
    EXPECT_TRUE(torch::allclose(local, expected.narrow(0, own.begin, own.size), 1e-4, 1e-5));

    local.sum().backward();
    expected.sum().backward();
    EXPECT_TRUE(
        torch::allclose(full_tensor(net.fc1->weight.grad()), plain.fc1->weight.grad(), 1e-4, 1e-5));
  });
}

TEST(ShardModuleTest, OutputsMayGoToOtherRanksAndGradientsComeBack) {
  on_every_rank_count([](World& world) {
    auto ranks = world.group().ranks();
    std::reverse(ranks.begin(), ranks.end());
    for (const auto count : {ranks.size(), std::size_t{1}}) {
      torch::nn::Sequential plain(torch::nn::Linear(3, 5));
      torch::nn::Sequential net(torch::nn::Linear(3, 5));
      {
        const torch::NoGradGuard no_grad;
        for (std::size_t i = 0; i < 2; ++i) {
          const auto values = torch::sin(counted(plain->parameters()[i].sizes().vec()));
          plain->parameters()[i].copy_(values);
          net->parameters()[i].copy_(values);
        }
      }
      const std::vector<std::int64_t> to(ranks.begin(), ranks.begin() + std::ssize(ranks));
      const std::vector<std::int64_t> some(to.begin(), to.begin() + static_cast<long>(count));
      shard_module(*net, {.plan = {{"0.*", over(0, world)}},
                          .output_plan = {{"0", ChunkShardingSpec::over(0, some)}}});
      const at::Tensor x = torch::cos(counted({7, 3}));
      const at::Tensor input = distribute_tensor(x, mesh_of(net->parameters()[0]), {Replicate()});
      const at::Tensor output = net->forward(input);
      EXPECT_EQ(mesh_of(output).shape().ranks(), some);
      EXPECT_EQ(placements_of(output), Placements{Shard(0)});
      output.square().sum().backward();
      plain->forward(x).square().sum().backward();
      EXPECT_TRUE(torch::allclose(full_tensor(net->parameters()[0].grad()),
                                  plain->parameters()[0].grad(), 1e-4, 1e-5));
    }
  });
}

TEST(ShardModuleTest, TwoGroupsShardModulesOfTheirOwn) {
  run_ranks(4, [](World& world) {
    const bool odd = world.rank() % 2 == 1;
    const Group group =
        world.group(odd ? std::vector<std::int64_t>{3, 1} : std::vector<std::int64_t>{0, 2});
    torch::nn::Sequential net(torch::nn::Linear(3, 5), torch::nn::Linear(5, 2));
    {
      const torch::NoGradGuard no_grad;
      net->parameters()[0].fill_(world.rank());
    }
    shard_module(*net,
                 {.plan = {{"0.*", ChunkShardingSpec::over(0, group.ranks())}},
                  .output_plan = {{"1", ChunkShardingSpec::over(0, group.ranks())}}},
                 /*src_rank=*/1, group);
    const at::Tensor weight = net->parameters()[0];
    EXPECT_EQ(mesh_of(weight).shape().ranks(), group.ranks());
    EXPECT_TRUE(torch::equal(full_tensor(weight.detach()), torch::full({5, 3}, odd ? 1.0F : 2.0F)));
    const at::Tensor x = distribute_tensor(torch::ones({4, 3}), mesh_of(weight), {Replicate()});
    const at::Tensor output = net->forward(x);
    EXPECT_EQ(to_local(output.detach()).sizes(), (std::vector<std::int64_t>{2, 2}));
    output.sum().backward();
    EXPECT_EQ(placements_of(weight.grad()), Placements{Shard(0)});
  });
}

TEST(ShardModuleTest, ChunksOfOneElementLoseTheirDim) {
  run_ranks(4, [](World& world) {
    torch::nn::Sequential net(torch::nn::Linear(16, 16));
    shard_module(
        *net, {.plan = {}, .output_plan = {{"0", over(0, world)}}, .return_local_tensor = {"0"}});
    const auto shape_for = [&](std::int64_t rows) {
      const at::Tensor x = distribute_tensor(
          torch::ones({rows, 16}), DeviceMesh::from_group(world.group(), "cpu"), {Replicate()});
      return net->forward(x).sizes().vec();
    };
    EXPECT_EQ(shape_for(4), (std::vector<std::int64_t>{16}));
    // A last chunk of one element is one of several rows: the ranks' results have the same dims.
    EXPECT_EQ(shape_for(7), (std::vector<std::int64_t>{world.rank() == 3 ? 1 : 2, 16}));
  });
}

TEST(ShardModuleTest, PartialOutputsAreReducedBeforeTheyAreLocal) {
  run_ranks(2, [](World& world) {
    torch::nn::Sequential net(torch::nn::Linear(torch::nn::LinearOptions(4, 3).bias(false)));
    shard_module(*net, {.plan = {{"0.weight", over(1, world)}}, .return_local_tensor = {"0"}});
    const at::Tensor weight = net->parameters()[0];
    const at::Tensor x = distribute_tensor(torch::ones({2, 4}), mesh_of(weight), {Replicate()});
    EXPECT_TRUE(
        torch::allclose(net->forward(x), torch::ones({2, 4}).mm(full_tensor(weight.detach()).t())));
  });
}

/// Replaces a Linear by one that adds a constant; or only says so.
class Renamer final : public Sharder {
 public:
  explicit Renamer(bool replaces = true) : Renamer(replaces, replaces) {}
  Renamer(bool replaces, bool says_so) : replaces_(replaces), says_so_(says_so) {}
  void check(const torch::nn::Module& module, const Group&) const override {
    if (dynamic_cast<const torch::nn::LinearImpl*>(&module) == nullptr) {
      throw InvalidArgument("Renamer: only Linear");
    }
  }
  torch::nn::AnyModule shard(torch::nn::Module& module, std::int64_t, const Group&) const override {
    const torch::NoGradGuard no_grad;
    dynamic_cast<torch::nn::LinearImpl&>(module).bias.fill_(7);
    if (!replaces_) return {};
    return torch::nn::AnyModule(
        std::make_shared<torch::nn::FunctionalImpl>([](at::Tensor x) { return x + 100; }));
  }
  bool replaces_module() const override { return says_so_; }
  std::string name() const override { return "Renamer"; }

 private:
  bool replaces_;
  bool says_so_;
};

struct PlacesImpl : torch::nn::Module {
  PlacesImpl() {
    member = register_module("member", nn::Replaceable<torch::nn::Linear>(4, 4));
    fixed = register_module("fixed", torch::nn::Linear(4, 4));
    sequence = register_module("sequence", torch::nn::Sequential(torch::nn::Linear(4, 4)));
    list = register_module("list", torch::nn::ModuleList(torch::nn::Linear(4, 4)));
    const std::vector<std::pair<std::string, std::shared_ptr<torch::nn::Module>>> items{
        {"a", torch::nn::Linear(4, 4).ptr()}};
    dict = register_module("dict", torch::nn::ModuleDict(items));
  }
  nn::Replaceable<torch::nn::Linear> member{nullptr};
  torch::nn::Linear fixed{nullptr};
  torch::nn::Sequential sequence{nullptr};
  torch::nn::ModuleList list{nullptr};
  torch::nn::ModuleDict dict{nullptr};
};

TEST(SharderTest, ItsModuleReallyTakesThePlaceOfTheOldOne) {
  run_ranks(2, [](World&) {
    PlacesImpl places;
    const auto sharder = std::make_shared<const Renamer>();
    shard_module(places, {.plan = {{"member", sharder},
                                   {"sequence.*", sharder},
                                   {"list.0", sharder},
                                   {"dict.a", sharder}}});
    const at::Tensor x = torch::ones({2, 4});
    EXPECT_TRUE(torch::equal(places.member(x), x + 100));
    EXPECT_TRUE(torch::equal(places.sequence->forward(x), x + 100));
    EXPECT_NE(dynamic_cast<torch::nn::FunctionalImpl*>(places.list[0].get()), nullptr);
    EXPECT_NE(dynamic_cast<torch::nn::FunctionalImpl*>(places.dict["a"].get()), nullptr);
    for (const auto& item : places.named_modules(std::string(), /*include_self=*/false)) {
      if (item.key() == "member" || item.key() == "sequence.0" || item.key() == "list.0") {
        EXPECT_NE(dynamic_cast<torch::nn::FunctionalImpl*>(item.value().get()), nullptr)
            << item.key();
      }
    }
    const auto names = places.named_parameters();
    EXPECT_THAT(names.keys(), ElementsAre("fixed.weight", "fixed.bias"));
  });
}

TEST(SharderTest, AModuleAtTwoPlacesIsShardedOnceAndReplacedAtBoth) {
  run_ranks(2, [](World& world) {
    const torch::nn::EmbeddingBag bag(torch::nn::EmbeddingBagOptions(6, 4).mode(torch::kSum));
    torch::nn::Sequential net(bag);
    net->push_back("again", bag);
    const auto sharder = std::make_shared<const EmbeddingBagSharder>(over(0, world));
    const auto other = std::make_shared<const EmbeddingBagSharder>(over(0, world));
    EXPECT_THAT(refusal(world,
                        [&] {
                          shard_module(*net, {.plan = {{"0", sharder}, {"again", other}}});
                        }),
                HasSubstr("'0' and 'again' are the same module, but the plan gives it to "
                          "EmbeddingBagSharder("));
    EXPECT_TRUE(is_untouched(*net));
    shard_module(*net, {.plan = {{"*", sharder}}});
    EXPECT_EQ(net->ptr(0), net->ptr(1));
    EXPECT_EQ(net->named_children()["0"], net->named_children()["again"]);
    EXPECT_NE(net->ptr(0), bag.ptr());
    EXPECT_EQ(placements_of(net->parameters()[0]), Placements{Shard(0)});
  });
}

TEST(SharderTest, WhatItTakesCareOfIsChangedByNobodyElse) {
  struct TiedImpl : torch::nn::Module {
    TiedImpl() {
      const torch::nn::EmbeddingBagOptions options(6, 4);
      table = register_module("table", nn::Replaceable<torch::nn::EmbeddingBag>(options));
      copy = register_module("copy",
                             nn::Replaceable<torch::nn::EmbeddingBag>(
                                 torch::nn::EmbeddingBagOptions(options)._weight(table->weight)));
      head = register_module("head", std::make_shared<WeightImpl>(table->weight));
    }
    nn::Replaceable<torch::nn::EmbeddingBag> table{nullptr};
    nn::Replaceable<torch::nn::EmbeddingBag> copy{nullptr};
    std::shared_ptr<WeightImpl> head;
  };
  run_ranks(2, [](World& world) {
    TiedImpl net;
    const auto sharder = std::make_shared<const EmbeddingBagSharder>(over(0, world));
    EXPECT_THAT(
        refusal(
            world,
            [&] {
              shard_module(net, {.plan = {{"head.weight", over(1, world)}, {"table", sharder}}});
            }),
        HasSubstr("trying to shard a parameter: head.weight, but it is the same tensor as "
                  "table.weight, and there's already a Sharder entry for module table"));
    EXPECT_THAT(refusal(world,
                        [&] {
                          shard_module(net, {.plan = {{"table", sharder}, {"copy", sharder}}});
                        }),
                HasSubstr("'copy.weight' and 'table.weight' are the same tensor, but a Sharder "
                          "entry is there for each of their modules"));
    EXPECT_TRUE(is_untouched(net));
    shard_module(net, {.plan = {{"table", sharder}}});
    EXPECT_EQ(placements_of(net.head->weight), Placements{Shard(0)});
  });
}

TEST(SharderTest, MustDoWhatItSays) {
  run_ranks(2, [](World& world) {
    for (const bool replaces : {true, false}) {
      PlacesImpl places;
      const auto sharder = std::make_shared<const Renamer>(replaces, /*says_so=*/!replaces);
      EXPECT_THAT(refusal(world,
                          [&] {
                            shard_module(places, {.plan = {{"member", sharder}}});
                          }),
                  HasSubstr(replaces ? "returned a module for 'member', but said that it replaces "
                                       "none (replaces_module)"
                                     : "returned no module for 'member', but said that it replaces "
                                       "it (replaces_module)"));
    }
  });
}

TEST(SharderTest, OneThatWorksInPlaceNeedsNoSpecialPlace) {
  run_ranks(2, [](World&) {
    PlacesImpl places;
    shard_module(places, {.plan = {{"fixed", std::make_shared<const Renamer>(false)}}});
    EXPECT_TRUE(torch::equal(places.fixed->bias.detach(), torch::full({4}, 7.0F)));
  });
}

TEST(SharderTest, HooksOfAReplacedModuleAreCalled) {
  run_ranks(2, [](World& world) {
    struct NetWithBag : torch::nn::Module {
      NetWithBag() {
        bag = register_module("bag", nn::Replaceable<torch::nn::EmbeddingBag>(
                                         torch::nn::EmbeddingBagOptions(6, 4).mode(torch::kSum)));
        bags =
            register_module("bags", torch::nn::Sequential(torch::nn::EmbeddingBag(
                                        torch::nn::EmbeddingBagOptions(6, 4).mode(torch::kSum))));
      }
      nn::Replaceable<torch::nn::EmbeddingBag> bag{nullptr};
      torch::nn::Sequential bags{nullptr};
    };
    NetWithBag net;
    const auto sharder = std::make_shared<const EmbeddingBagSharder>(over(0, world));
    shard_module(net, {.plan = {{"bag", sharder}, {"bags.0", sharder}},
                       .output_plan = {{"bag", over(0, world)}},
                       .return_local_tensor = {"bags.0"}});
    const at::Tensor input = torch::tensor({{0, 5}, {1, 1}}, torch::kLong);
    EXPECT_EQ(placements_of(net.bag(input)), Placements{Shard(0)});
    EXPECT_FALSE(is_dtensor(net.bags->forward(input)));
    EXPECT_EQ(net.bags->forward(input).sizes(), (std::vector<std::int64_t>{2, 4}));
    EXPECT_THAT(refusal(world, [&] { (void)net.bag(input + 1); }),
                HasSubstr("EmbeddingBag: indices from 1 to 6 given; the table has 6 rows"));
  });
}

TEST(SharderTest, FactorsOfAShardedEmbeddingBagGetTheWholeGradient) {
  on_every_rank_count([](World& world) {
    for (const std::int64_t dim : {0, 1}) {
      SCOPED_TRACE(dim);
      const auto options = torch::nn::EmbeddingBagOptions(5, 3).mode(torch::kSum);
      torch::nn::EmbeddingBag plain(options);
      torch::nn::Sequential net((torch::nn::EmbeddingBag(options)));
      {
        const torch::NoGradGuard no_grad;
        plain->weight.copy_(torch::sin(counted({5, 3})));
        net->parameters()[0].copy_(plain->weight);
      }
      shard_module(
          *net, {.plan = {{"0", std::make_shared<const EmbeddingBagSharder>(over(dim, world))}}});
      const at::Tensor input = torch::tensor({{0, 4}, {1, 1}, {2, 3}}, torch::kLong);
      const at::Tensor factors = torch::cos(counted({3, 2})).requires_grad_();
      const at::Tensor own = factors.detach().clone().requires_grad_();
      plain(input, at::Tensor(), factors).square().sum().backward();
      net->forward(input, at::Tensor(), own).square().sum().backward();
      EXPECT_TRUE(torch::allclose(own.grad(), factors.grad())) << own.grad() << factors.grad();
      const DeviceMesh mesh = mesh_of(net->parameters()[0]);
      const at::Tensor spread = distribute_tensor(own.detach(), mesh, {Shard(0)}).requires_grad_();
      net->forward(input, at::Tensor(), spread).square().sum().backward();
      EXPECT_EQ(placements_of(spread.grad()), Placements{Shard(0)});
      EXPECT_TRUE(torch::allclose(full_tensor(spread.grad()), factors.grad()));
    }
  });
}

TEST(SharderTest, AShardedEmbeddingBagRefusesWrongBagsOnAllRanks) {
  // Rank 2 has no rows of its own.
  run_ranks(3, [](World& world) {
    torch::nn::Sequential sum(
        (torch::nn::EmbeddingBag(torch::nn::EmbeddingBagOptions(2, 4).mode(torch::kSum))));
    torch::nn::Sequential mean((torch::nn::EmbeddingBag(2, 4)));
    const auto sharder = std::make_shared<const EmbeddingBagSharder>(over(0, world));
    shard_module(*sum, {.plan = {{"0", sharder}}});
    shard_module(*mean, {.plan = {{"0", sharder}}});
    const at::Tensor flat = torch::tensor({0, 1, 1}, torch::kLong);
    const auto refused = [&](torch::nn::Sequential& net, const at::Tensor& input,
                             const at::Tensor& offsets, const at::Tensor& factors = {}) {
      return refusal(world, [&] { (void)net->forward(input, offsets, factors); });
    };
    for (const auto& offsets : {std::vector<std::int64_t>{1, 2}, {0, 2, 1}, {0, 4}}) {
      EXPECT_THAT(refused(sum, flat, torch::tensor(offsets)),
                  HasSubstr("EmbeddingBag: offsets given that do not go up from 0 to 3, the number "
                            "of indices"));
    }
    EXPECT_THAT(refused(sum, flat, {}),
                HasSubstr("an input of 1 dims given; pass a 2-dim one, or a 1-dim one with"));
    EXPECT_THAT(refused(sum, flat.unsqueeze(0), torch::tensor({0})),
                HasSubstr("offsets given with a 2-dim input"));
    EXPECT_THAT(refused(sum, flat.unsqueeze(0), {}, torch::ones({3})),
                HasSubstr("per_sample_weights of shape [3] given for an input of shape [1,3]"));
    EXPECT_THAT(refused(mean, flat.unsqueeze(0), {}, torch::ones({1, 3})),
                HasSubstr("per_sample_weights given to one of another mode than sum"));
  });
}

TEST(SharderTest, TheEmbeddingBagSharderRefusesWhatItCannotDo) {
  run_ranks(2, [](World& world) {
    const auto refused = [&](const torch::nn::EmbeddingBagOptions& options,
                             const ChunkShardingSpec& spec) {
      torch::nn::Sequential net((torch::nn::EmbeddingBag(options)));
      return refusal(world, [&] {
        shard_module(*net, {.plan = {{"0", std::make_shared<const EmbeddingBagSharder>(spec)}}});
      });
    };
    const torch::nn::EmbeddingBagOptions bag(6, 4);
    EXPECT_THAT(refused(torch::nn::EmbeddingBagOptions(bag).mode(torch::kMax), over(0, world)),
                HasSubstr("an EmbeddingBag of mode max given"));
    EXPECT_THAT(refused(torch::nn::EmbeddingBagOptions(bag).max_norm(1.0), over(0, world)),
                HasSubstr("max_norm, sparse or scale_grad_by_freq"));
    EXPECT_THAT(refused(bag, ChunkShardingSpec::over(0, {1})),
                HasSubstr("1 chunks given for group world of 2 ranks"));
    torch::nn::Sequential net(torch::nn::Linear(4, 4));
    EXPECT_THAT(refusal(world,
                        [&] {
                          shard_module(*net,
                                       {.plan = {{"0", std::make_shared<const EmbeddingBagSharder>(
                                                           over(0, world))}}});
                        }),
                HasSubstr("it shards torch::nn::EmbeddingBag only"));
  });
}

TEST(ShardModuleTest, RefusesWholePlansBeforeTheFirstChange) {
  run_ranks(2, [](World& world) {
    NetImpl net;
    const ShardingSpec spec = over(0, world);
    const auto entry = PlanEntry(over(0, world));
    const auto sharder = std::make_shared<const Renamer>();
    const auto text_of = [&](const ShardingPlan& plan) {
      return refusal(world, [&] { shard_module(net, plan); });
    };
    EXPECT_THAT(text_of({.plan = {{"body", sharder}}, .return_local_tensor = {"body.2"}}),
                HasSubstr("trying to change what module body.2 returns, but there's already a "
                          "Sharder entry for module body above it"));
    const auto refused = [&](ShardingPlan plan) {
      // Something that could be done comes first.
      plan.plan.emplace("body.0.weight", over(0, world));
      auto text = text_of(plan);
      EXPECT_TRUE(is_untouched(net));
      EXPECT_NE(dynamic_cast<torch::nn::LinearImpl*>(net.fc2.get()), nullptr);
      return text;
    };
    EXPECT_THAT(
        refused({.plan = {{"body.2", sharder}, {"body.2.weight", entry}}}),
        HasSubstr("shard_module: ShardingPlan is in-valid, trying to shard a parameter: "
                  "body.2.weight, but there's already a Sharder entry for module body.2, parameter "
                  "sharding should not conflict with the submodule tree that a Sharder is working "
                  "with!"));
    EXPECT_THAT(refused({.plan = {{"body.1", sharder}}}), HasSubstr("Renamer: only Linear"));
    EXPECT_THAT(
        refused({.plan = {{"body", sharder}, {"body.2", sharder}}}),
        HasSubstr("trying to shard a module: body.2, but there's already a Sharder entry for "
                  "module body, which takes care of all that is in it"));
    EXPECT_THAT(
        refused({.plan = {{"body.2", std::make_shared<const Renamer>()}, {"body.1", nullptr}}}),
        HasSubstr("Only `ShardingSpec` and `Sharder` are supported to shard 'body.1'"));
    EXPECT_THAT(refused({.plan = {{"", sharder}}}),
                HasSubstr("Module path must not be empty for custom sharder! Renamer was given"));
    EXPECT_THAT(refused({.plan = {{"**", sharder}}}),
                HasSubstr("Module path must not be empty for custom sharder! '**' stands for the "
                          "root too"));
    EXPECT_THAT(
        refused({.plan = {{"fc2", sharder}}}),
        HasSubstr("shard_module: module 'fc2' (torch::nn::Linear) cannot be replaced, because "
                  "its parent calls it by a member; declare the member as "
                  "tessera::nn::Replaceable<torch::nn::Linear>"));
    EXPECT_THAT(
        refused({.plan = {{"fc3", sharder}}}),
        AllOf(HasSubstr("Net has no attribute `fc3`: the plan names it, but there is no such "
                        "module; near ones are 'fc1', 'fc2'")));
    EXPECT_THAT(refused({.plan = {{"fc3.weight", entry}}}), HasSubstr("has no attribute `fc3`"));
    EXPECT_THAT(refused({.plan = {{"fc[12.weight", entry}}}),
                HasSubstr("shard_module: pattern 'fc[12.weight' opens a set of characters"));
    EXPECT_THAT(refused({.plan = {{"fc2.wieght", entry}}}),
                HasSubstr("torch::nn::Linear has no attribute `wieght`"));
    EXPECT_THAT(refused({.plan = {{"fc2", entry}}}), HasSubstr("fc2 to be a Tensor, but found"));
    EXPECT_THAT(refused({.plan = {{"fc*.wieght", entry}}}),
                HasSubstr("has no attribute `fc*.wieght`: the plan names it, but there is no such "
                          "parameter or buffer"));
    EXPECT_THAT(refused({.plan = {{"fc*.weight", over(0, world)}, {"*2.weight", over(1, world)}}}),
                HasSubstr("'*2.weight' and 'fc*.weight' both stand for 'fc2.weight'"));
    EXPECT_THAT(refused({.plan = {{"fc2.weight", ChunkShardingSpec::over(0, {0, 0})}}}),
                HasSubstr("param: fc2.weight cannot be placed as"));
    EXPECT_THAT(refused({.plan = {{"fc2.weight", ChunkShardingSpec::over(5, {0, 1})}}}),
                HasSubstr("Invalid sharding dim: 5"));
    EXPECT_THAT(refused({.plan = {}, .output_plan = {{"fc2", spec}}}),
                HasSubstr("shard_module: module 'fc2' (torch::nn::Linear) cannot have hooks"));
    EXPECT_THAT(refused({.plan = {}, .output_plan = {{"fc7", spec}}}),
                HasSubstr("has no attribute `fc7`"));
    EXPECT_THAT(refused({.plan = {}, .output_plan = {{"fc1", ChunkShardingSpec::over(0, {1, 1})}}}),
                HasSubstr("the output_plan for 'fc1' is ChunkShardingSpec(dim=0, "));
    EXPECT_THAT(refused({.plan = {}, .output_plan = {{"fc1", ChunkShardingSpec::over(0, {0, 4})}}}),
                HasSubstr("the output_plan for 'fc1' names rank 4, which does not exist in group"));
    EXPECT_THAT(refused({.plan = {}, .return_local_tensor = {"fc2"}}),
                HasSubstr("cannot have hooks"));
    EXPECT_THAT(refused({.plan = {}, .return_local_tensor = {"nowhere"}}),
                HasSubstr("has no attribute `nowhere`"));
    EXPECT_THAT(refused({.plan = {{world.rank() == 0 ? "fc1.bias" : "fc2.bias", entry}}}),
                AllOf(HasSubstr("shard_module: plan={'body.0.weight': "),
                      HasSubstr("on rank: 0 does not match with plan=")));
  });
}

TEST(ShardModuleTest, ASharderNearbyIsNoSharderAbove) {
  run_ranks(2, [](World& world) {
    struct Near : torch::nn::Module {
      Near() {
        a = register_module("fc", nn::Replaceable<torch::nn::Linear>(4, 4));
        b = register_module("fc_b", torch::nn::Linear(4, 4));
      }
      nn::Replaceable<torch::nn::Linear> a{nullptr};
      torch::nn::Linear b{nullptr};
    };
    Near net;
    shard_module(net, {.plan = {{"fc", std::make_shared<const Renamer>()},
                                {"fc_b.weight", over(0, world)}}});
    EXPECT_EQ(placements_of(net.b->weight), Placements{Shard(0)});
  });
}

TEST(BudgetPlannerTest, ShardsTheLargestUntilItFits) {
  run_ranks(2, [](World& world) {
    // float32: 2000 + 40 + 300 + 12 bytes.
    torch::nn::Sequential net(torch::nn::Linear(50, 10), torch::nn::Linear(25, 3));
    const auto plan_of = [&](std::int64_t bytes, std::int64_t copies = 1) {
      return BudgetPlanner({.bytes_per_rank = bytes, .copies = copies}).build_plan(*net).plan;
    };
    EXPECT_TRUE(plan_of(2352).empty());
    EXPECT_THAT(plan_of(2351), ElementsAre(Key("0.weight")));
    EXPECT_THAT(plan_of(2 * 1352, 2), ElementsAre(Key("0.weight")));
    EXPECT_THAT(plan_of(1351), ElementsAre(Key("0.weight"), Key("1.weight")));
    // Ten rows are cut evenly; three are not, but 25 columns are cut almost evenly.
    EXPECT_EQ(std::get<ChunkShardingSpec>(plan_of(1351).at("0.weight")).dim(), 0);
    EXPECT_EQ(std::get<ChunkShardingSpec>(plan_of(1351).at("1.weight")).dim(), 1);
    EXPECT_THAT(refusal(world, [&] { (void)plan_of(1183); }),
                HasSubstr("BudgetPlanner: 1183 B (1.2 kB) per rank given, but with everything "
                          "sharded over 2 ranks the fullest one needs 1184 B (1.2 kB), counting 1 "
                          "copy of the parameters; give more, or use more ranks"));
    EXPECT_THAT(refusal(world, [&] { BudgetPlanner planner({.bytes_per_rank = -1}); }),
                HasSubstr("a budget of -1 bytes given"));
    EXPECT_THAT(refusal(world, [&] { BudgetPlanner planner({.copies = 0}); }),
                HasSubstr("0 copies given"));
  });
}

TEST(BudgetPlannerTest, CountsBuffersOnceAndCutsWhatSavesMost) {
  run_ranks(4, [](World&) {
    // Parameters of 2 x 32 bytes, buffers of 32, 32 and 8.
    torch::nn::BatchNorm1d norm(8);
    const auto plan_of = [&](std::int64_t bytes) {
      return BudgetPlanner({.bytes_per_rank = bytes, .copies = 4}).build_plan(*norm).plan;
    };
    EXPECT_TRUE(plan_of(4 * 64 + 72).empty());
    EXPECT_THAT(plan_of(4 * 64 + 71), ElementsAre(Key("weight")));
    // Over four ranks a row of seven saves five elements, and the larger cube, cut in half, four.
    struct TwoImpl : torch::nn::Module {
      TwoImpl() {
        register_parameter("cube", torch::zeros({2, 2, 2}));
        const at::Tensor row = register_parameter("row", torch::zeros({7}));
        register_parameter("tied", row);
      }
    };
    const BudgetPlanner planner({.bytes_per_rank = 40});
    EXPECT_THAT(planner.build_plan(TwoImpl()).plan, ElementsAre(Key("row"), Key("tied")));
  });
}

TEST(BudgetPlannerTest, WhatRanksHoldIsWithinTheBudget) {
  on_every_rank_count([](World& world) {
    for (std::int64_t budget = 500; budget < 2600; budget += 300) {
      SCOPED_TRACE(budget);
      torch::nn::Sequential net(torch::nn::Linear(50, 10), torch::nn::Linear(25, 3));
      const BudgetPlanner planner({.bytes_per_rank = budget});
      ShardingPlan plan;
      try {
        plan = planner.build_plan(*net);
      } catch (const InvalidArgument&) {
        continue;
      }
      const std::int64_t planned = planner.held_bytes(*net, plan);
      EXPECT_LE(planned, budget);
      shard_module(*net, plan);
      std::int64_t held = 0;
      for (const auto& parameter : net->parameters()) {
        held += static_cast<std::int64_t>(to_local(parameter.detach()).nbytes());
      }
      EXPECT_LE(held, planned);
      if (world.rank() == 0) {
        EXPECT_EQ(held, planned);
      }
    }
  });
}

}  // namespace
}  // namespace tessera::sharded
