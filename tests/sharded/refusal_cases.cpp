#include "sharded/refusal_cases.h"

#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/torch.h>

#include "sharded/refusal.h"
#include "sharded/sharded_cases.h"
#include "tessera/comm/traffic.h"
#include "tessera/sharded/factories.h"
#include "tessera/sharded/shard_parameter.h"
#include "tessera/sharded/sharding_plan.h"
#include "tessera/tensor/dtensor.h"

namespace tessera::test {
namespace {

using namespace sharded;
using ::testing::HasSubstr;

/// Who is wrong, and what to expect of the others.
struct Mistakes {
  World& world;
  bool is_wrong = world.rank() == world.size() - 1;
  ChunkShardingSpec rows = ChunkShardingSpec::over(0, world.group().ranks());
  ChunkShardingSpec columns = ChunkShardingSpec::over(1, world.group().ranks());

  template <typename Call>
  void expect(const std::string& part, const Call& call) const {
    CommDebugMode traffic;
    const auto scope = traffic.record();
    EXPECT_THAT(refusal(world, call), HasSubstr(part));
    EXPECT_EQ(traffic.received_bytes(), 0) << part;
  }

  /// The others say who made the mistake.
  template <typename Call>
  void expect_told(const std::string& function, const std::string& part, const Call& call) const {
    expect(part, call);
    const auto rank = world.size() - 1;
    const std::string prefix =
        concat(function, ": rank ", rank, " was called with something wrong: ");
    if (!is_wrong) expect(prefix, call);
    if (is_wrong) expect(part, call);
  }
};

void check_tensors(const Mistakes& one) {
  const at::Tensor whole = counted({6, 4});
  const bool wrong = one.is_wrong;
  one.expect_told("shard_tensor", "input tensor is not a contiguous Tensor", [&] {
    (void)shard_tensor(wrong ? counted({4, 6}).t() : whole, one.rows);
  });
  one.expect("does not match with src_rank=1 on rank: ",
             [&] { (void)shard_tensor(whole, one.rows, wrong ? 1 : 0); });
  one.expect("zeros: sizes=[4] on rank: 0 does not match with sizes=[5]",
             [&] { (void)zeros(one.rows, {wrong ? 5 : 4}); });
  const std::int64_t rank = one.world.rank();
  const ShardMetadata own({rank}, {1}, RankDevice(rank));
  one.expect("dtype property does not match from different ranks! Found dtype=float32", [&] {
    const at::Tensor piece = torch::zeros({1}, wrong ? at::kDouble : at::kFloat);
    (void)init_from_local_shards({{piece, own}}, {one.world.size()});
  });
  const auto tensor = shard_tensor(whole, one.rows);
  one.expect_told("gather", "must NOT be specified on non-destination ranks", [&] {
    (void)tensor.gather(0, wrong ? torch::zeros({6, 4}) : at::Tensor());
  });
  one.expect("gather: dst=0 on rank: 0 does not match with dst=1",
             [&] { (void)tensor.gather(wrong ? 1 : 0); });
  one.expect("does not match with sharding_spec=ChunkShardingSpec(dim=1",
             [&] { (void)tensor.reshard(wrong ? one.columns : one.rows); });
  one.expect_told("load_sharded_tensor", "the bytes given are not those of to_bytes",
                  [&] { (void)load_sharded_tensor(wrong ? "nothing" : to_bytes(tensor)); });
  // Different functions.
  one.expect(wrong ? "gather: rank 0 called reshard instead" : " called gather instead", [&] {
    if (wrong) {
      (void)tensor.gather();
    } else {
      (void)tensor.reshard(one.rows);
    }
  });
  expect_shards(tensor, whole);
}

void check_dtensors(const Mistakes& one) {
  const at::Tensor whole = counted({6, 4});
  const DeviceMesh mesh("cpu", MeshShape({one.world.size()}), one.world);
  const auto tensor = shard_tensor(whole, one.rows);
  one.expect("placements=", [&] {
    (void)tensor.to_dtensor(mesh, {one.is_wrong ? Placement(Shard(1)) : Placement(Shard(0))});
  });
  one.expect_told("to_dtensor", "redistribute to Partial afterwards", [&] {
    (void)tensor.to_dtensor(mesh, {one.is_wrong ? Placement(Partial()) : Placement(Shard(0))});
  });
  const at::Tensor x = tensor.to_dtensor();
  one.expect("does not match with sharding_spec=",
             [&] { (void)from_dtensor(x, one.is_wrong ? one.columns : one.rows); });
  one.expect_told("from_dtensor", "a plain tensor given",
                  [&] { (void)from_dtensor(one.is_wrong ? whole : x, ShardingSpec(one.columns)); });
}

/// Takes any module on all ranks but one.
class Picky final : public Sharder {
 public:
  explicit Picky(bool refuses) : refuses_(refuses) {}
  void check(const torch::nn::Module&, const Group&) const override {
    if (refuses_) throw std::out_of_range("Picky: not today");
  }
  torch::nn::AnyModule shard(torch::nn::Module&, std::int64_t, const Group&) const override {
    return {};
  }
  bool replaces_module() const override { return false; }
  std::string name() const override { return "Picky"; }

 private:
  bool refuses_;
};

void check_modules(const Mistakes& one) {
  torch::nn::Sequential net(torch::nn::Linear(4, 6), torch::nn::Linear(6, 4));
  one.expect_told("shard_parameter", "has no attribute `nothing`", [&] {
    shard_parameter(*net->ptr(0), one.is_wrong ? "nothing" : "weight", one.rows);
  });
  one.expect_told("shard_module", "has no attribute `2`", [&] {
    shard_module(*net, {.plan = {{one.is_wrong ? "2.weight" : "1.weight", one.rows}}});
  });
  one.expect("plan={'0.weight': ", [&] {
    shard_module(*net, {.plan = {{"0.weight", one.is_wrong ? one.columns : one.rows}}});
  });
  // What is thrown is thrown again where it was.
  const ShardingPlan plan{
      .plan = {{"0.weight", one.rows}, {"1", std::make_shared<const Picky>(one.is_wrong)}}};
  if (one.is_wrong) {
    EXPECT_THROW(shard_module(*net, plan), std::out_of_range);
  } else {
    EXPECT_THAT([&] { shard_module(*net, plan); },
                ::testing::ThrowsMessage<InvalidArgument>(HasSubstr("Picky: not today")));
  }
  for (const auto& parameter : net->parameters()) EXPECT_FALSE(is_dtensor(parameter));
  shard_module(*net, {.plan = {{"0.weight", one.rows}}});
  EXPECT_TRUE(is_dtensor(net->parameters()[0]));
}

}  // namespace

void check_refusals(World& world) {
  const Mistakes one{world};
  check_tensors(one);
  check_dtensors(one);
  check_modules(one);
}

}  // namespace tessera::test
