#include "comm/collectives_inputs.h"
#include "tessera/base/concat.h"
#include "tessera/comm/collectives.h"
#include "tessera/layout/chunk.h"

// Every reduction of every dtype.

namespace tessera::test {
namespace {

bool is_defined(at::ScalarType type, ReduceOp op) {
  const bool is_float = at::isFloatingType(type);
  const bool is_complex = at::isComplexType(type);
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::product:
      return true;
    case ReduceOp::avg:
      return is_float || is_complex;
    case ReduceOp::min:
    case ReduceOp::max:
      return !is_complex;
    default:
      return !is_float && !is_complex;
  }
}

constexpr ReduceOp kOps[] = {ReduceOp::sum,     ReduceOp::avg,  ReduceOp::min, ReduceOp::max,
                             ReduceOp::product, ReduceOp::band, ReduceOp::bor, ReduceOp::bxor};

/// Averages alone are rounded, once.
double tolerance_of(at::ScalarType type, ReduceOp op) {
  if (op != ReduceOp::avg) return 0;
  if (type == at::kFloat8_e5m2 || type == at::kFloat8_e4m3fn) return 0.25;
  if (type == at::kHalf || type == at::kBFloat16 || type == at::kComplexHalf) return 0.01;
  return type == at::kFloat || type == at::kComplexFloat ? 1e-6 : 1e-15;
}

template <typename Check>
void for_every_reduction(const Check& check) {
  for (const auto type : every_dtype()) {
    for (const auto op : kOps) {
      if (!is_defined(type, op)) continue;
      SCOPED_TRACE(concat(op, " of ", c10::toString(type)));
      check(type, op);
    }
  }
}

TEST(AllReduceTest, EveryOpOfEveryDtypeIsThatOfAllInputs) {
  on_every_rank_count([](World& world) {
    for_every_reduction([&](at::ScalarType type, ReduceOp op) {
      const auto all = patterns({3, 5}, world.size(), type);
      const at::Tensor& x = all[static_cast<std::size_t>(world.rank())];
      const at::Tensor before = x.clone();
      expect_same_values(all_reduce(x, op, world.group()), reduced(all, op),
                         tolerance_of(type, op));
      expect_same_bits(x, before);
    });
  });
}

TEST(ReduceScatterTest, EveryOpOfEveryDtypeIsAPieceOfTheReduction) {
  on_every_rank_count([](World& world) {
    for_every_reduction([&](at::ScalarType type, ReduceOp op) {
      const auto all = patterns({3, 5}, world.size(), type);
      const at::Tensor& x = all[static_cast<std::size_t>(world.rank())];
      for (const std::int64_t dim : {0, 1, -1}) {
        const Extent own = chunk_extent(x.size(dim), world.size(), world.rank());
        const at::Tensor expected = reduced(all, op).narrow(dim, own.begin, own.size);
        expect_same_values(reduce_scatter(x, dim, op, world.group()), expected,
                           tolerance_of(type, op));
      }
    });
  });
}

TEST(AllReduceTest, UnsignedNumbersBeyondTheSignedRangeKeepTheirOrder) {
  on_every_rank_count([](World& world) {
    const auto group = world.group();
    const at::Tensor high = at::tensor({-1L, -5L}, at::kLong).view(at::kUInt64);
    const at::Tensor low = at::tensor({3L, 4L}, at::kLong).view(at::kUInt64);
    const at::Tensor x = world.rank() == 0 ? high : low;
    const bool has_low = world.size() > 1;
    expect_same_bits(all_reduce(x, ReduceOp::max, group), high);
    expect_same_bits(all_reduce(x, ReduceOp::min, group), has_low ? low : high);
    const at::Tensor sum = high.view(at::kLong) + low.view(at::kLong) * (world.size() - 1);
    expect_same_bits(all_reduce(x, ReduceOp::sum, group), sum.view(at::kUInt64));
  });
}

TEST(AllReduceTest, HalfPrecisionIsRoundedOnce) {
  run_ranks(4, [](World& world) {
    // 256 + 1 + 1 + 1: bfloat16 would lose each single 1.
    const at::Tensor x = at::full({2}, world.rank() == 0 ? 256 : 1, at::kBFloat16);
    const at::Tensor expected = at::full({2}, 259, at::kDouble).to(at::kBFloat16);
    expect_same_values(all_reduce(x, ReduceOp::sum, world.group()), expected);
  });
}

TEST(AllReduceTest, SmallIntegersWrapAsTheirOwnArithmeticDoes) {
  run_ranks(3, [](World& world) {
    const at::Tensor x = at::full({2}, 30'000, at::kShort);
    const at::Tensor expected = at::full({2}, 90'000, at::kLong).to(at::kShort);
    expect_same_values(all_reduce(x, ReduceOp::sum, world.group()), expected);
  });
}

}  // namespace
}  // namespace tessera::test
