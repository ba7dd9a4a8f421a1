#include <functional>

#include "comm/collectives_inputs.h"
#include "comm/process/sample_cases.h"
#include "support/random_layout.h"
#include "tessera/base/concat.h"
#include "tessera/comm/collectives.h"
#include "tessera/comm/device_mesh.h"
#include "tessera/comm/traffic.h"
#include "tessera/layout/chunk.h"

namespace tessera::test {
namespace {

/// What a seed draws, alike on all ranks.
struct Draw {
  Draw(std::uint64_t seed, const Group& among)
      : random(seed), group(among), members(among.size()), own(among.index()) {
    dtype = random.pick(every_dtype());
    shape = {random.between(0, 7), random.between(0, 3)};
    dim = random.between(0, 1);
    root = random.between(0, members - 1);
    async_op = random.one_in(2);
    for (std::int64_t i = 0; i < members; ++i) sizes.push_back(random.between(0, 4));
  }

  Random random;
  Group group;
  std::int64_t members;
  std::int64_t own;
  at::ScalarType dtype = at::kFloat;
  Sizes shape;
  std::int64_t dim = 0;
  std::int64_t root = 0;
  bool async_op = false;
  /// One per member.
  Sizes sizes;

  /// Member `i`'s tensor, of its own size along the dim.
  [[nodiscard]] at::Tensor uneven(std::int64_t i) const {
    Sizes own_shape = shape;
    own_shape[static_cast<std::size_t>(dim)] = sizes[static_cast<std::size_t>(i)];
    return pattern(own_shape, i, dtype);
  }
  [[nodiscard]] Tensors all_uneven() const {
    Tensors all;
    for (std::int64_t i = 0; i < members; ++i) all.push_back(uneven(i));
    return all;
  }
  [[nodiscard]] at::Tensor even(std::int64_t i) const { return pattern(shape, i, dtype); }
  /// An op that goes with the dtype.
  [[nodiscard]] ReduceOp op() {
    std::vector<ReduceOp> ops = {ReduceOp::sum, ReduceOp::product};
    const bool is_complex = at::isComplexType(dtype);
    const bool is_float = at::isFloatingType(dtype);
    if (!is_complex) ops.insert(ops.end(), {ReduceOp::min, ReduceOp::max});
    if (is_float || is_complex) ops.push_back(ReduceOp::avg);
    if (!is_float && !is_complex) {
      ops.insert(ops.end(), {ReduceOp::band, ReduceOp::bor, ReduceOp::bxor});
    }
    return random.pick(ops);
  }
};

/// The numbers are small, so that sums and products are exact but in dtypes of few bits; there the order
/// of additions counts, and with avg the division does.
double rounding_of(at::ScalarType dtype, ReduceOp op) {
  if (at::isIntegralType(dtype, /*includeBool=*/true)) return 0;
  const bool has_few_bits = c10::elementSize(c10::toRealValueType(dtype)) < 4;
  return has_few_bits ? 0.07 : op == ReduceOp::avg ? 1e-6 : 0;
}

void sample_all_reduce(Draw draw) {
  const ReduceOp op = draw.op();
  const at::Tensor x = with_odd_strides(draw.even(draw.own));
  const at::Tensor got = wait(all_reduce(x, op, draw.group, {.async_op = draw.async_op}));
  expect_same_values(got, reduced(patterns(draw.shape, draw.members, draw.dtype), op),
                     rounding_of(draw.dtype, op));
}

void sample_coalesced(Draw draw) {
  draw.dim = 0;
  const Tensors mine = {draw.even(draw.own), pattern({3}, draw.own, at::kLong),
                        draw.even(draw.own)};
  const Tensors sums = all_reduce(mine, ReduceOp::sum, draw.group, {.async_op = draw.async_op});
  const at::Tensor first = reduced(patterns(draw.shape, draw.members, draw.dtype), ReduceOp::sum);
  expect_same_values(wait(sums.at(0)), first, rounding_of(draw.dtype, ReduceOp::sum));
  expect_same_values(wait(sums.at(1)),
                     reduced(patterns({3}, draw.members, at::kLong), ReduceOp::sum));
  const Tensors gathered = all_gather({draw.uneven(draw.own), mine[1]}, 0, draw.group);
  expect_same_bits(wait(gathered.at(0)), at::cat(draw.all_uneven(), 0));
  expect_same_bits(wait(gathered.at(1)), at::cat(patterns({3}, draw.members, at::kLong), 0));
}

void sample_all_gather(Draw draw) {
  const bool tell = draw.random.one_in(2);
  const at::Tensor got =
      all_gather(with_odd_strides(draw.uneven(draw.own)), draw.dim, draw.group,
                 {.async_op = draw.async_op, .sizes = tell ? draw.sizes : Sizes{}});
  expect_same_bits(wait(got), at::cat(draw.all_uneven(), draw.dim));
}

void sample_reduce_scatter(Draw draw) {
  const ReduceOp op = draw.op();
  const auto own =
      chunk_extent(draw.shape[static_cast<std::size_t>(draw.dim)], draw.members, draw.own);
  const at::Tensor got = wait(
      reduce_scatter(draw.even(draw.own), draw.dim, op, draw.group, {.async_op = draw.async_op}));
  expect_same_values(got,
                     reduced(patterns(draw.shape, draw.members, draw.dtype), op)
                         .narrow(draw.dim, own.begin, own.size),
                     rounding_of(draw.dtype, op));
}

void sample_all_to_all(Draw draw) {
  // From i to j go (i + 2 j + sizes[0]) % 4 rows.
  const auto count = [&](std::int64_t i, std::int64_t j) {
    return (i + 2 * j + draw.sizes[0]) % 4;
  };
  const auto sent_by = [&](std::int64_t i) {
    Tensors parts;
    for (std::int64_t j = 0; j < draw.members; ++j) {
      parts.push_back(pattern({count(i, j), draw.shape[1]}, i + j, draw.dtype));
    }
    return parts;
  };
  Sizes send;
  Sizes receive;
  Tensors expected;
  for (std::int64_t i = 0; i < draw.members; ++i) {
    send.push_back(count(draw.own, i));
    receive.push_back(count(i, draw.own));
    expected.push_back(sent_by(i)[static_cast<std::size_t>(draw.own)]);
  }
  if (draw.random.one_in(2)) receive.clear();
  const at::Tensor got = all_to_all(at::cat(sent_by(draw.own), 0), receive, send, draw.group,
                                    {.async_op = draw.async_op});
  expect_same_bits(wait(got), at::cat(expected, 0));
}

void sample_roots(Draw draw) {
  const at::Tensor sent =
      broadcast(draw.even(draw.own), draw.root, draw.group, {.async_op = draw.async_op});
  expect_same_bits(wait(sent), draw.even(draw.root));
  const at::Tensor gathered = wait(
      gather(draw.uneven(draw.own), draw.dim, draw.root, draw.group, {.async_op = draw.async_op}));
  if (draw.own == draw.root) expect_same_bits(gathered, at::cat(draw.all_uneven(), draw.dim));
  const auto extent =
      chunk_extent(draw.shape[static_cast<std::size_t>(draw.dim)], draw.members, draw.own);
  const at::Tensor scattered = wait(
      scatter(draw.even(draw.own), draw.dim, draw.root, draw.group, {.async_op = draw.async_op}));
  expect_same_bits(scattered,
                   draw.even(draw.root).narrow(draw.dim, extent.begin, extent.size).contiguous());
  const Tensors pieces = draw.own == draw.root ? draw.all_uneven() : Tensors{};
  expect_same_bits(scatter(pieces, draw.root, draw.group), draw.uneven(draw.own));
}

void sample_messages(Draw draw) {
  const std::int64_t next = (draw.own + 1) % draw.members;
  const std::int64_t before = (draw.own + draw.members - 1) % draw.members;
  Sizes destinations;
  for (std::int64_t i = 0; i < draw.members; ++i) destinations.push_back((i + 1) % draw.members);
  const at::Tensor turned =
      permute(draw.even(draw.own), destinations, draw.group, {.async_op = draw.async_op});
  expect_same_bits(wait(turned), draw.even(before));
  const at::Tensor like = draw.even(before);
  const at::Tensor got = recv(like, before, draw.group, draw.root, {.async_op = true});
  send(draw.even(draw.own), next, draw.group, draw.root);
  expect_same_bits(wait(got), like);
  std::vector<std::string> expected;
  for (const auto size : draw.sizes) expected.emplace_back(static_cast<std::size_t>(size), 'x');
  EXPECT_EQ(all_gather_object(expected[static_cast<std::size_t>(draw.own)], draw.group), expected);
  barrier(draw.group);
}

}  // namespace

void check_collectives(World& world, std::uint64_t first, std::uint64_t count) {
  const std::vector<std::function<void(Draw)>> samples = {
      sample_all_reduce, sample_coalesced, sample_all_gather, sample_reduce_scatter,
      sample_all_to_all, sample_roots,     sample_messages};
  // Of the first two, all, and all in another order.
  std::vector<std::int64_t> turned;
  for (std::int64_t rank = world.size() - 1; rank >= 0; --rank) turned.push_back(rank);
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    SCOPED_TRACE(concat("seed ", seed, " on rank ", world.rank()));
    const auto choice = Random(seed).between(0, 2);
    if (choice == 0 && world.rank() > 1) continue;
    const Group group = choice == 0   ? world.group({0, 1}, "pair")
                        : choice == 1 ? world.group()
                                      : world.group(turned, "turned");
    for (const auto& sample : samples) {
      if (!::testing::Test::HasFailure()) sample(Draw(seed, group));
    }
  }
  barrier(world.group());
}

void check_gradients_and_traffic(World& world) {
  const DeviceMesh mesh = DeviceMesh::from_group(world.group(), "cpu", "dp");
  const Group group = mesh.group("dp");
  const auto n = static_cast<double>(world.size());
  const at::Tensor x = at::full({4}, static_cast<double>(world.rank() + 1), at::kDouble);
  at::Tensor leaf = x.clone().requires_grad_();
  CommDebugMode traffic;
  {
    const auto scope = traffic.record();
    const at::Tensor total = all_reduce(leaf, ReduceOp::sum, group, {.async_op = true});
    const at::Tensor all = all_gather(leaf, 0, group);
    (total.pow(2).sum() + all.pow(2).sum()).backward();
  }
  // All losses together: n times (the sum's square and everybody's squares).
  const double sum = n * (n + 1) / 2;
  expect_same_values(leaf.grad(), at::full_like(x, n * 2 * sum) + n * 2 * x, 1e-12);
  EXPECT_EQ(traffic.count("all_reduce"), 2) << traffic.table();
  EXPECT_EQ(traffic.count("all_gather_into_tensor"), 1) << traffic.table();
  EXPECT_EQ(traffic.count("reduce_scatter_tensor"), 1) << traffic.table();
  EXPECT_EQ(traffic.total_count(), 4);
  if (x.numel() % world.size() == 0) {
    // Twice what an all_reduce receives, and what the gather and its backward do.
    const auto bytes = static_cast<std::int64_t>(x.nbytes());
    const std::int64_t others = world.size() - 1;
    EXPECT_EQ(traffic.received_bytes(), 4 * others * bytes / world.size() + 2 * others * bytes);
  }
  const auto records = traffic.gathered(group);
  EXPECT_EQ(static_cast<std::int64_t>(records.size()), 4 * world.size());
}

void check_all_samples(World& world) {
  const auto first = static_cast<std::uint64_t>(10'000 * world.size());
  check_redistributions(world, first, kRedistributions);
  check_collectives(world, first, kCollectives);
  check_gradients_and_traffic(world);
}

}  // namespace tessera::test
