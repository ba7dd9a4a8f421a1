#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "comm/process/sample_cases.h"
#include "comm/redistribute_bits.h"
#include "support/random_layout.h"
#include "tessera/base/concat.h"
#include "tessera/base/error.h"
#include "tessera/comm/collectives.h"
#include "tessera/comm/comm_error.h"
#include "tessera/comm/redistribute_local.h"
#include "tessera/comm/world_state.h"
#include "tessera/plan/redistribute_plan.h"

namespace tessera::test {
namespace {

struct Sample {
  Layout from;
  Layout to;
  at::ScalarType dtype;
  /// Of all `Partial`s.
  ReduceOp op;
  RedistributeLocalOptions options;
  bool strided;
  /// Values that are no numbers, where nothing is reduced.
  bool odd;
};

/// A mesh of some of the ranks, in any order.
MeshShape draw_mesh(Random& random, std::int64_t world_size) {
  const MeshShape mesh =
      random_mesh(random, {.max_dims = 2, .max_size = world_size, .max_ranks = world_size});
  std::vector<std::int64_t> ranks(static_cast<std::size_t>(world_size));
  std::iota(ranks.begin(), ranks.end(), std::int64_t{0});
  if (random.one_in(2)) random.shuffle(ranks);
  ranks.resize(static_cast<std::size_t>(mesh.num_ranks()));
  return MeshShape(mesh.sizes(), mesh.names(), ranks);
}

/// Makes both layouts Partial along one dim of a mesh of two, and not along the other: contributions
/// that only move, which two layouts drawn at random seldom have.
void let_contributions_pass(Random& random, Sample& sample) {
  const MeshShape& mesh = sample.from.mesh();
  if (mesh.ndim() != 2 || !mesh.same_ranks(sample.to.mesh())) return;
  const auto dim = static_cast<std::size_t>(random.between(0, 1));
  for (Layout* layout : {&sample.from, &sample.to}) {
    Placements placements = layout->placements();
    if (is_partial(placements[1 - dim])) placements[1 - dim] = Replicate();
    placements[dim] = Partial(sample.op);
    *layout = Layout(layout->mesh(), placements, layout->shape());
  }
}

Sample draw_sample(std::uint64_t seed, std::int64_t world_size) {
  Random random(seed);
  const MeshShape from = draw_mesh(random, world_size);
  const MeshShape to = random.one_in(2) ? from : draw_mesh(random, world_size);
  const Shape shape = random_shape(random, {.max_dims = 3, .max_size = 9, .max_numel = 200});
  const auto dtype = random.pick(
      std::vector{at::kFloat, at::kDouble, at::kLong, at::kBool, at::kBFloat16, at::kComplexFloat});
  std::vector<ReduceOp> ops = {ReduceOp::sum};
  if (!at::isComplexType(dtype)) ops.insert(ops.end(), {ReduceOp::min, ReduceOp::max});
  if (dtype == at::kFloat || dtype == at::kDouble) ops.push_back(ReduceOp::avg);
  const ReduceOp op = random.pick(ops);
  PlacementOptions placements{.max_split_factor = 3};
  if (dtype != at::kBool) placements.partial_ops = {op};
  const Layout source = random_layout_on(random, from, shape, placements);
  RedistributeLocalOptions options{.async_op = random.one_in(3)};
  if (random.one_in(4)) options.staging_budget = random.between(64, 400);
  Sample sample{
      source, random_layout_on(random, to, shape, placements), dtype, op, options, random.one_in(3),
      false};
  if (!placements.partial_ops.empty() && random.one_in(2)) let_contributions_pass(random, sample);
  sample.odd = random.one_in(2) && only_moves(sample.from, sample.to);
  return sample;
}

/// The tensor that the contributions of a layout are made from.
at::Tensor base_of(const Sample& sample) {
  const auto values = at::arange(sample.from.numel(), at::kLong).mul(7).remainder(17);
  if (sample.dtype == at::kBool) return values.remainder(3).eq(0).view(sample.from.shape());
  return values.view(sample.from.shape()).to(sample.dtype);
}

/// How many contributions a layout has.
std::int64_t contributions(const Layout& layout) {
  std::int64_t count = 1;
  for (std::size_t i = 0; i < layout.placements().size(); ++i) {
    if (is_partial(layout.placements()[i])) count *= layout.mesh().sizes()[i];
  }
  return count;
}

/// The whole tensor: contribution k is the base plus k.
at::Tensor value_of(const Sample& sample) {
  const std::int64_t n = contributions(sample.from);
  const at::Tensor base = base_of(sample);
  if (n == 1) return base;
  switch (sample.op) {
    case ReduceOp::sum:
      return base * n + n * (n - 1) / 2;
    case ReduceOp::avg:
      return base + static_cast<double>(n - 1) / 2;
    case ReduceOp::max:
      return base + (n - 1);
    default:
      return base;
  }
}

at::Tensor part_of(at::Tensor whole, const Part& part) {
  for (std::size_t d = 0; d < part.dims.size(); ++d) {
    std::vector<std::int64_t> indices;
    for (const auto& run : part.dims[d].runs()) {
      for (std::int64_t i = run.begin; i < run.end(); ++i) indices.push_back(i);
    }
    whole = whole.index_select(static_cast<std::int64_t>(d), at::tensor(indices, at::kLong));
  }
  return whole.contiguous();
}

at::Tensor contribution_at(const Sample& sample, const Coordinate& coordinate) {
  const std::int64_t number = contribution_number(sample.from, coordinate);
  return number == 0 ? base_of(sample) : base_of(sample) + number;
}

/// NaNs, both zeros and other bits, in either layout.
at::Tensor odd_part(const Sample& sample, const Layout& layout, const Coordinate& coordinate) {
  const auto number = contribution_number(layout, coordinate);
  return part_of(odd_bits(layout.shape(), sample.dtype, number), layout.part_at(coordinate))
      .view(sample.dtype);
}

at::Tensor local_input(const Sample& sample, std::int64_t rank) {
  const auto coordinate = sample.from.mesh().coordinate_of(rank);
  if (!coordinate) return at::empty({0}, sample.dtype);
  const at::Tensor local =
      sample.odd ? odd_part(sample, sample.from, *coordinate)
                 : part_of(contribution_at(sample, *coordinate), sample.from.part_at(*coordinate));
  return sample.strided ? at::stack({local, local}, -1).select(-1, 1) : local;
}

/// What was only moved has kept every bit.
void expect_same_bits(const Sample& sample, const at::Tensor& moved, std::int64_t rank) {
  const auto coordinate = sample.to.mesh().coordinate_of(rank);
  if (!coordinate) return;
  const auto bits = [&](const at::Tensor& x) {
    return x.contiguous().view(carrier_of(sample.dtype));
  };
  const at::Tensor expected = odd_part(sample, sample.to, *coordinate);
  EXPECT_EQ(moved.scalar_type(), sample.dtype);
  EXPECT_TRUE(bits(moved).equal(bits(expected))) << moved << "\ninstead of\n" << expected;
}

void check_sample(World& world, const Sample& sample) {
  const std::int64_t rank = world.rank();
  const at::Tensor local = local_input(sample, rank);
  at::Tensor moved = wait(redistribute_local(local, sample.from, sample.to, sample.options));
  Layout layout = sample.to;
  if (!layout.mesh().contains(rank)) {
    // Nothing for who is outside of the destination, and nothing new outside of both.
    EXPECT_EQ(moved.sizes(), at::IntArrayRef({0}));
    EXPECT_EQ(moved.scalar_type(), sample.dtype);
    EXPECT_EQ(moved.is_same(local), !sample.from.mesh().contains(rank));
  }
  if (sample.odd) return expect_same_bits(sample, moved, rank);
  if (layout.has_partial()) {
    // Contributions can be of any value that reduces to the right one.
    layout = Layout(layout.mesh(),
                    Placements(static_cast<std::size_t>(layout.mesh().ndim()), Replicate()),
                    layout.shape());
    moved = redistribute_local(moved, sample.to, layout);
  }
  if (!layout.mesh().contains(rank)) return;
  const at::Tensor expected = part_of(value_of(sample), *layout.part_of(rank));
  EXPECT_EQ(moved.scalar_type(), sample.dtype);
  EXPECT_TRUE(moved.equal(expected)) << moved << "\ninstead of\n" << expected;
}

/// False when the planner cannot keep to the budget; all ranks find the same.
bool has_plan(const World& world, const Sample& sample) {
  try {
    (void)plan_redistribute(
        sample.from, sample.to,
        {.element_size = static_cast<std::int64_t>(c10::elementSize(sample.dtype)),
         .staging_budget = sample.options.staging_budget,
         .cost = world.state().cost_model()});
    return true;
  } catch (const InvalidArgument&) {
    return false;
  }
}

}  // namespace

void check_redistributions(World& world, std::uint64_t first, std::uint64_t count) {
  std::uint64_t checked = 0;
  std::uint64_t odd = 0;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    const Sample sample = draw_sample(seed, world.size());
    SCOPED_TRACE(concat("seed ", seed, ": ", sample.from, " to ", sample.to, ' ',
                        c10::toString(sample.dtype), " on rank ", world.rank()));
    if (!has_plan(world, sample)) continue;
    check_sample(world, sample);
    ++checked;
    if (sample.odd) ++odd;
    if (::testing::Test::HasFailure()) break;
  }
  EXPECT_GT(checked, count * 3 / 4) << "too many samples cannot be planned";
  // About a quarter are.
  if (count >= 100) {
    EXPECT_GT(odd, count / 10) << "too few samples have values that are no numbers";
  }
  barrier(world.group());
}

void expect_halves_that_differ_are_found(World& world) {
  const MeshShape mesh({2, 2}, {"dp", "tp"});
  const Shape shape = {8, world.rank() < 2 ? 8 : 12};
  const Layout from(mesh, {Partial(), Shard(0)}, shape);
  const Layout to(mesh, {Replicate(), Shard(1)}, shape);
  try {
    (void)redistribute_local(at::ones({4, shape[1]}), from, to);
    ADD_FAILURE() << "the mismatch was not found";
  } catch (const CommError& error) {
    EXPECT_THAT(error.what(),
                testing::ContainsRegex("redistribute on group world, rank .*: the ranks do not "
                                       "agree: rank 0 calls redistribute\\(Float \\[8,8\\].*, rank "
                                       "2 calls redistribute\\(Float \\[8,12\\]"));
  }
}

void expect_wrong_argument_is_told(World& world) {
  const MeshShape mesh({world.size()});
  const Layout rows(mesh, {Shard(0)}, {2 * world.size(), 6});
  const Layout whole(mesh, {Replicate()}, {2 * world.size(), 6});
  try {
    (void)redistribute_local(at::ones({world.rank() == 1 ? 3 : 2, 6}), rows, whole);
    ADD_FAILURE() << "the wrong shape was not found";
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(world.rank(), 1);
    EXPECT_THAT(error.what(), testing::HasSubstr("a local tensor of shape [3,6] given"));
  } catch (const CommError& error) {
    EXPECT_NE(world.rank(), 1);
    EXPECT_THAT(error.what(),
                testing::HasSubstr("rank 1 calls redistribute(invalid: redistribute_local: a local "
                                   "tensor of shape [3,6] given"));
  }
}

}  // namespace tessera::test
