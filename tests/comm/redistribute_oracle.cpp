#include "comm/redistribute_oracle.h"

#include <gtest/gtest.h>

#include <torch/torch.h>

#include "comm/indirect_transport.h"
#include "support/rank_test.h"
#include "tessera/base/concat.h"
#include "tessera/comm/collectives.h"
#include "tessera/comm/redistribute_local.h"
#include "tessera/comm/world_state.h"

namespace tessera::test {
namespace {

/// Where nothing is reduced, bits are moved and not numbers: elements are then integers of the same
/// width, as far as there are any, which no arithmetic or comparison of numbers can mistake for others.
bool moves_bits(const MoveCase& test) {
  const bool has_carrier = c10::elementSize(test.dtype) <= c10::elementSize(at::kLong);
  return has_carrier && !test.from.has_partial() && !test.to.has_partial();
}

at::ScalarType carrier_of(at::ScalarType dtype) {
  if (dtype == at::kBool) return at::kByte;
  constexpr at::ScalarType kByWidth[] = {at::kByte, at::kShort, at::kInt, at::kLong};
  const auto width = c10::elementSize(dtype);
  return kByWidth[width == 8 ? 3 : width / 2];
}

/// Both zeros, several NaNs (all bits set, and all but the sign and the last one) and anything else;
/// for complex numbers in both halves. Of bools, true and false.
at::Tensor odd_bits(const Layout& layout, at::ScalarType dtype) {
  const auto carrier = carrier_of(dtype);
  const at::ScalarType half = dtype == at::kComplexFloat ? at::kInt : carrier;
  const auto bits = static_cast<std::int64_t>(8 * c10::elementSize(half));
  const std::int64_t sign = std::numeric_limits<std::int64_t>::min() >> (64 - bits);
  const auto index =
      at::arange(dtype == at::kComplexFloat ? 2 * layout.numel() : layout.numel(), at::kLong);
  if (dtype == at::kBool) return index.mul(7).remainder(2).to(carrier).view(layout.shape());
  const auto kind = index.remainder(5);
  at::Tensor values = index.mul(0x1E3779B97F4A7C15).add(5);
  values = values.masked_fill(kind.eq(0), sign).masked_fill(kind.eq(1), -1);
  values = values.masked_fill(kind.eq(2), -(sign + 2)).to(half);
  if (half == carrier) return values.view(layout.shape());
  return values.view({layout.numel(), 2}).view(carrier).view(layout.shape());
}

/// The value of every element, and for Partial the contribution of the rank at a coordinate: whole
/// numbers small enough to be exact in every dtype.
at::Tensor contribution(const Layout& layout, const Coordinate& coordinate, at::ScalarType dtype) {
  std::int64_t number = 0;
  for (std::size_t i = 0; i < coordinate.size(); ++i) {
    const bool partial = is_partial(layout.placements()[i]);
    if (partial) number = number * layout.mesh().sizes()[i] + coordinate[i];
  }
  auto values = at::arange(layout.numel(), at::kLong).mul(7).add(3 * number).remainder(11).add(1);
  if (dtype == at::kBool) values = values.remainder(2);
  return values.view(layout.shape()).to(dtype);
}

at::Tensor reduced(ReduceOp op, const std::vector<at::Tensor>& all) {
  at::Tensor result = all.front().clone();
  for (std::size_t i = 1; i < all.size(); ++i) {
    switch (op) {
      case ReduceOp::sum:
      case ReduceOp::avg:
        result = result + all[i];
        break;
      case ReduceOp::product:
        result = result * all[i];
        break;
      case ReduceOp::min:
        result = at::minimum(result, all[i]);
        break;
      case ReduceOp::max:
        result = at::maximum(result, all[i]);
        break;
      case ReduceOp::band:
        result = at::bitwise_and(result, all[i]);
        break;
      case ReduceOp::bor:
        result = at::bitwise_or(result, all[i]);
        break;
      case ReduceOp::bxor:
        result = at::bitwise_xor(result, all[i]);
        break;
    }
  }
  return result;
}

/// Reduces what all ranks hold in `layout` along its Partial dims: `held(coordinate)` is a rank's
/// whole contribution.
template <typename Held>
at::Tensor value_of(const Layout& layout, Held held) {
  std::vector<at::Tensor> all;
  std::int64_t averaged = 1;
  for (std::int64_t i = 0; i < layout.mesh().num_ranks(); ++i) {
    const Coordinate coordinate = layout.mesh().coordinate_at(i);
    bool first = true;
    for (std::size_t d = 0; d < coordinate.size(); ++d) {
      if (!is_partial(layout.placements()[d])) first &= coordinate[d] == 0;
    }
    if (first) all.push_back(held(coordinate));
  }
  for (std::size_t d = 0; d < layout.placements().size(); ++d) {
    if (layout.placements()[d] == Placement(Partial(ReduceOp::avg)))
      averaged *= layout.mesh().sizes()[d];
  }
  at::Tensor value = reduced(layout.reduce_op().value_or(ReduceOp::sum), all);
  return averaged > 1 ? value / averaged : value;
}

/// What all ranks got in one case.
class Checker {
 public:
  explicit Checker(std::int64_t ranks) : outputs_(static_cast<std::size_t>(ranks)) {}

  void start(const World& world, const MoveCase& test, bool async_op) {
    at::Tensor& output = outputs_[static_cast<std::size_t>(world.rank())];
    output = redistribute_local(local_input(test, world.rank()), test.from, test.to,
                                {.async_op = async_op, .staging_budget = test.staging_budget});
    EXPECT_TRUE(async_op || !is_pending(output));
  }

  void finish(const World& world) { (void)wait(outputs_[static_cast<std::size_t>(world.rank())]); }

  void expect_right(const MoveCase& test) {
    if (moves_bits(test)) return expect_bits(test);
    const at::Tensor expected = value_of(
        test.from, [&](const Coordinate& at) { return contribution(test.from, at, test.dtype); });
    const std::string text = describe(test);
    if (test.to.has_partial()) {
      expect_contributions(test, expected, text);
      return;
    }
    for (const auto rank : test.to.mesh().ranks()) {
      expect_part(test, rank, output_of(test, rank),
                  part_of(expected, *test.to.part_of(rank)).to(test.dtype));
    }
  }

 private:
  static std::string describe(const MoveCase& test) {
    return concat(test.from, " to ", test.to, ' ', c10::toString(test.dtype),
                  test.strided ? " strided" : "");
  }

  /// What a rank got, after making sure that it is what was asked for by its outside.
  const at::Tensor& output_of(const MoveCase& test, std::int64_t rank) {
    const at::Tensor& got = outputs_[static_cast<std::size_t>(rank)];
    EXPECT_EQ(got.scalar_type(), test.dtype) << describe(test);
    EXPECT_TRUE(got.is_contiguous() || test.from.equivalent(test.to)) << describe(test);
    return got;
  }

  static void expect_part(const MoveCase& test, std::int64_t rank, const at::Tensor& got,
                          const at::Tensor& want) {
    ASSERT_TRUE(got.sizes() == want.sizes())
        << describe(test) << " rank " << rank << " has " << got.sizes();
    ASSERT_TRUE(at::equal(got, want)) << describe(test) << " rank " << rank << "\n"
                                      << got << "\n"
                                      << want;
  }

  void expect_bits(const MoveCase& test) {
    const at::Tensor expected = odd_bits(test.from, test.dtype);
    for (const auto rank : test.to.mesh().ranks()) {
      expect_part(test, rank, output_of(test, rank).view(carrier_of(test.dtype)),
                  part_of(expected, *test.to.part_of(rank)));
    }
  }

  /// Puts the ranks' contributions together to whole tensors, reduces them and compares.
  void expect_contributions(const MoveCase& test, const at::Tensor& expected,
                            const std::string& text) {
    const auto assembled = [&](const Coordinate& partial) {
      at::Tensor whole = at::zeros(test.to.shape(), test.dtype);
      for (const auto rank : test.to.mesh().ranks()) {
        const Coordinate at = *test.to.mesh().coordinate_of(rank);
        bool same = true;
        for (std::size_t d = 0; d < at.size(); ++d) {
          if (is_partial(test.to.placements()[d])) same &= at[d] == partial[d];
        }
        if (same) scatter(whole, *test.to.part_of(rank), outputs_[static_cast<std::size_t>(rank)]);
      }
      return whole;
    };
    const at::Tensor got = value_of(test.to, assembled);
    ASSERT_TRUE(at::allclose(got.to(at::kDouble), expected.to(at::kDouble))) << text << "\n"
                                                                             << got << "\n"
                                                                             << expected;
  }

  static void scatter(const at::Tensor& whole, const Part& part, const at::Tensor& local) {
    std::vector<at::indexing::TensorIndex> index;
    if (part.dims.empty()) {
      whole.copy_(local);
      return;
    }
    at::Tensor flat = at::arange(whole.numel(), at::kLong).view(whole.sizes());
    flat = part_of(flat, part);
    whole.view(-1).index_copy_(0, flat.view(-1), local.reshape(-1));
  }

  std::vector<at::Tensor> outputs_;
};

std::vector<Placement> every_placement(std::size_t ndim, const PairOptions& options) {
  std::vector<Placement> all{Replicate(), Partial(ReduceOp::sum)};
  if (options.all_kinds) all.emplace_back(Partial(options.other_op));
  for (std::size_t d = 0; d < ndim; ++d) {
    all.emplace_back(Shard(static_cast<std::int64_t>(d)));
    if (options.all_kinds) {
      all.emplace_back(StridedShard(static_cast<std::int64_t>(d), options.split_factor));
    }
  }
  return all;
}

/// All placements for a mesh, by counting through them.
std::vector<Placements> all_placements(const MeshShape& mesh, std::size_t ndim,
                                       const PairOptions& options) {
  const auto choices = every_placement(ndim, options);
  std::vector<Placements> all{{}};
  for (std::int64_t d = 0; d < mesh.ndim(); ++d) {
    std::vector<Placements> longer;
    for (const auto& prefix : all) {
      for (const auto& choice : choices) {
        longer.push_back(prefix);
        longer.back().push_back(choice);
      }
    }
    all = std::move(longer);
  }
  return all;
}

void make_indirect(const World& world, const Group& group) {
  detail::GroupState& state = group.state();
  if (state.transport != nullptr) return;
  state.transport = std::make_unique<IndirectTransport>(world.state().make_transport(state));
}

}  // namespace

at::Tensor local_input(const MoveCase& test, std::int64_t rank) {
  const auto coordinate = test.from.mesh().coordinate_of(rank);
  if (!coordinate) return at::empty({0}, test.dtype);
  const Part part = test.from.part_at(*coordinate);
  at::Tensor local = moves_bits(test)
                         ? part_of(odd_bits(test.from, test.dtype), part).view(test.dtype)
                         : part_of(contribution(test.from, *coordinate, test.dtype), part);
  if (!test.strided || local.dim() == 0) return local;
  // The same values in columns, and every other element only.
  return at::stack({local, local}, -1).transpose(0, -1).contiguous().transpose(0, -1).select(-1, 0);
}

at::Tensor part_of(const at::Tensor& whole, const Part& part) {
  at::Tensor local = whole;
  for (std::size_t d = 0; d < part.dims.size(); ++d) {
    std::vector<std::int64_t> indices;
    for (const auto& run : part.dims[d].runs()) {
      for (std::int64_t i = run.begin; i < run.end(); ++i) indices.push_back(i);
    }
    local = local.index_select(static_cast<std::int64_t>(d), torch::tensor(indices, at::kLong));
  }
  return local.contiguous();
}

bool mixes_partials(const Placements& placements) {
  std::optional<ReduceOp> op;
  for (const auto& placement : placements) {
    const auto* partial = std::get_if<Partial>(&placement);
    if (partial == nullptr) continue;
    if (op.value_or(partial->op) != partial->op) return true;
    op = partial->op;
  }
  return false;
}

bool is_possible(const Placements& from, const Placements& to) {
  for (std::size_t i = 0; i < from.size(); ++i) {
    const auto* a = std::get_if<Partial>(&from[i]);
    const auto* b = std::get_if<Partial>(&to[i]);
    if (a != nullptr && b != nullptr && !(*a == *b)) return false;
  }
  return !mixes_partials(from) && !mixes_partials(to);
}

/// ThreadSanitizer looks for races, which do not depend on the values moved, and takes ten times as
/// long: a seventh of the pairs do, scattered over all kinds of placements.
bool is_left_out([[maybe_unused]] std::size_t number) {
#ifdef __SANITIZE_THREAD__
  constexpr std::uint64_t kScatter = 0x9e3779b97f4a7c15;
  return (number * kScatter >> 33) % 7 != 0;
#else
  return false;
#endif
}

bool takes_maximum(const Placements& placements) {
  return std::find(placements.begin(), placements.end(), Placement(Partial(ReduceOp::max))) !=
         placements.end();
}

std::vector<MoveCase> every_pair(const MeshShape& from, const MeshShape& to, const Shape& shape,
                                 const PairOptions& options) {
  std::vector<MoveCase> cases;
  std::size_t number = 0;
  for (const auto& before : all_placements(from, shape.size(), options)) {
    for (const auto& after : all_placements(to, shape.size(), options)) {
      if (mixes_partials(before) || mixes_partials(after)) continue;
      if (from.same_ranks(to) && !is_possible(before, after)) continue;
      if (number++ % options.every != options.first || is_left_out(number)) continue;
      const bool strided = (number / options.every + options.strided_phase) % 2 == 0;
      // Complex numbers have no maximum. Dtypes share the pairs, so another one takes its place.
      const bool has_none =
          at::isComplexType(options.dtype) && (takes_maximum(before) || takes_maximum(after));
      cases.push_back({Layout(from, before, shape), Layout(to, after, shape),
                       has_none ? at::kFloat : options.dtype, strided, options.staging_budget});
    }
  }
  return cases;
}

void make_indirect(const World& world, const MeshShape& mesh) {
  std::vector<Group> groups{world.group()};
  if (mesh.contains(world.rank())) {
    groups.push_back(world.group(mesh.ranks()));
    for (std::uint64_t chosen = 1; chosen < (std::uint64_t{1} << mesh.ndim()); ++chosen) {
      std::vector<std::int64_t> dims;
      for (std::int64_t dim = 0; dim < mesh.ndim(); ++dim) {
        if ((chosen >> dim & 1) != 0) dims.push_back(dim);
      }
      do {
        groups.push_back(world.group(mesh.slice_dims(dims, world.rank()).ranks()));
      } while (std::next_permutation(dims.begin(), dims.end()));
    }
  }
  for (const auto& group : groups) make_indirect(world, group);
}

void make_all_indirect(const World& world) {
  for (std::uint64_t chosen = 1; chosen < (std::uint64_t{1} << world.size()); ++chosen) {
    std::vector<std::int64_t> ranks;
    for (std::int64_t rank = 0; rank < world.size(); ++rank) {
      if ((chosen >> rank & 1) != 0) ranks.push_back(rank);
    }
    if ((chosen >> world.rank() & 1) != 0) make_indirect(world, world.group(ranks));
  }
}

void expect_moves(std::int64_t ranks, const std::vector<MoveCase>& cases,
                  const MoveOptions& options) {
#ifdef __SANITIZE_THREAD__
  // Of a short list it may be that none is run.
  if (cases.empty()) return;
#endif
  ASSERT_FALSE(cases.empty());
  std::vector<Checker> checkers(cases.size(), Checker(ranks));
  const bool async_op = options.in_flight > 1;
  const auto run = [&](World& world) {
    if (options.indirect) {
      // All cases of a list have the same meshes.
      make_indirect(world, cases.front().from.mesh());
      make_indirect(world, cases.front().to.mesh());
    }
    for (std::size_t first = 0; first < cases.size(); first += options.in_flight) {
      const std::size_t end = std::min(first + options.in_flight, cases.size());
      for (std::size_t i = first; i < end; ++i) checkers[i].start(world, cases[i], async_op);
      // Last begun, first waited for.
      for (std::size_t i = end; i > first; --i) checkers[i - 1].finish(world);
    }
  };
  ASSERT_NO_THROW(run_ranks(ranks, run, test_options()));
  for (std::size_t i = 0; i < cases.size() && !::testing::Test::HasFatalFailure(); ++i) {
    checkers[i].expect_right(cases[i]);
  }
}

}  // namespace tessera::test
