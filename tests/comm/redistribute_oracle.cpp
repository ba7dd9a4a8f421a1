#include "comm/redistribute_oracle.h"

#include <unordered_map>
#include <utility>

#include <gtest/gtest.h>

#include <torch/torch.h>

#include "comm/indirect_transport.h"
#include "comm/redistribute_bits.h"
#include "support/rank_test.h"
#include "tessera/base/concat.h"
#include "tessera/comm/collectives.h"
#include "tessera/comm/redistribute_local.h"
#include "tessera/comm/world_state.h"

namespace tessera::test {
namespace {

/// Then elements are integers of the same width, as far as there are any.
bool moves_bits(const MoveCase& test) {
  return has_carrier(test.dtype) && only_moves(test.from, test.to);
}

/// The value of every element, and for Partial the contribution of the rank at a coordinate: whole
/// numbers small enough to be exact in every dtype.
at::Tensor contribution(const Layout& layout, const Coordinate& coordinate, at::ScalarType dtype) {
  const std::int64_t number = contribution_number(layout, coordinate);
  auto values = at::arange(layout.numel(), at::kLong).mul(7).add(3 * number).remainder(11).add(1);
  if (dtype == at::kBool) values = values.remainder(2);
  if (at::isComplexType(dtype))
    values = at::complex(values.to(at::kDouble), values.mul(3).remainder(7).to(at::kDouble));
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

/// What ranks have before a case: many cases begin alike.
struct Beginning {
  Layout from;
  at::ScalarType dtype;
  bool strided;
  bool bits;

  bool operator==(const Beginning&) const = default;
};

struct BeginningHash {
  std::size_t operator()(const Beginning& key) const { return key.from.hash(); }
};

/// What ranks should get where bits are moved, and nothing else matters.
struct Ending {
  Layout to;
  at::ScalarType dtype;

  bool operator==(const Ending&) const = default;
};

struct EndingHash {
  std::size_t operator()(const Ending& key) const { return key.to.hash(); }
};

/// Knows what all ranks pass and what they must get. Used by one thread.
class Oracle {
 public:
  explicit Oracle(std::int64_t ranks) : ranks_(ranks) {}

  const std::vector<at::Tensor>& inputs(const MoveCase& test) {
    auto& found = inputs_[{test.from, test.dtype, test.strided, moves_bits(test)}];
    for (auto rank = static_cast<std::int64_t>(found.size()); rank < ranks_; ++rank) {
      found.push_back(local_input(test, rank));
    }
    return found;
  }

  /// The parts of a tensor of odd bits, or of contributions of such, by position in the mesh.
  const std::vector<at::Tensor>& odd_parts(const MoveCase& test) {
    auto& found = odd_parts_[{test.to, test.dtype}];
    const MeshShape& mesh = test.to.mesh();
    for (auto i = static_cast<std::int64_t>(found.size()); i < mesh.num_ranks(); ++i) {
      const auto number = contribution_number(test.to, mesh.coordinate_at(i));
      found.push_back(part_of(odd_bits(test.to.shape(), test.dtype, number), test.to.part_at(i)));
    }
    return found;
  }

  /// What the contributions of a case amount to.
  const at::Tensor& value(const MoveCase& test) {
    at::Tensor& found = values_[{test.from, test.dtype}];
    if (!found.defined()) {
      found = value_of(
          test.from, [&](const Coordinate& at) { return contribution(test.from, at, test.dtype); });
    }
    return found;
  }

 private:
  std::int64_t ranks_;
  std::unordered_map<Beginning, std::vector<at::Tensor>, BeginningHash> inputs_;
  std::unordered_map<Ending, std::vector<at::Tensor>, EndingHash> odd_parts_;
  std::unordered_map<Ending, at::Tensor, EndingHash> values_;
};

/// What all ranks got in one case.
class Checker {
 public:
  Checker(const MoveCase& test, Oracle& oracle)
      : test_(test), oracle_(oracle), inputs_(oracle.inputs(test)), outputs_(inputs_.size()) {}

  void start(const World& world, bool async_op) {
    at::Tensor& output = outputs_[static_cast<std::size_t>(world.rank())];
    output = redistribute_local(input_of(world.rank()), test_.from, test_.to,
                                {.async_op = async_op, .staging_budget = test_.staging_budget});
    EXPECT_TRUE(async_op || !is_pending(output));
  }

  void finish(const World& world) { (void)wait(outputs_[static_cast<std::size_t>(world.rank())]); }

  void expect_right() {
    for (std::size_t rank = 0; rank < outputs_.size(); ++rank) {
      expect_outside(static_cast<std::int64_t>(rank));
    }
    if (moves_bits(test_)) return expect_bits();
    const at::Tensor& expected = oracle_.value(test_);
    if (test_.to.has_partial()) {
      expect_contributions(expected);
      return;
    }
    for (const auto rank : test_.to.mesh().ranks()) {
      expect_part(rank, output_of(rank),
                  part_of(expected, *test_.to.part_of(rank)).to(test_.dtype));
    }
  }

 private:
  [[nodiscard]] std::string describe() const {
    return concat(test_.from, " to ", test_.to, ' ', c10::toString(test_.dtype),
                  test_.strided ? " strided" : "");
  }

  [[nodiscard]] const at::Tensor& input_of(std::int64_t rank) const {
    return inputs_[static_cast<std::size_t>(rank)];
  }

  /// What a rank got, after making sure that it is what was asked for by its outside.
  const at::Tensor& output_of(std::int64_t rank) {
    const at::Tensor& got = outputs_[static_cast<std::size_t>(rank)];
    EXPECT_EQ(got.scalar_type(), test_.dtype) << describe();
    EXPECT_TRUE(got.is_contiguous() || test_.from.equivalent(test_.to)) << describe();
    const at::Tensor& input = input_of(rank);
    EXPECT_EQ(input.is_contiguous(), !test_.strided || input.dim() == 0 || input.numel() <= 1)
        << describe();
    return got;
  }

  /// Outside of the destination there is nothing to get; outside of both meshes nothing happens.
  void expect_outside(std::int64_t rank) {
    if (test_.to.mesh().contains(rank)) return;
    const at::Tensor& got = output_of(rank);
    EXPECT_TRUE(got.sizes() == at::IntArrayRef({0})) << describe() << " rank " << rank;
    EXPECT_EQ(got.is_same(input_of(rank)), !test_.from.mesh().contains(rank))
        << describe() << " rank " << rank;
  }

  void expect_part(std::int64_t rank, const at::Tensor& got, const at::Tensor& want) {
    ASSERT_TRUE(got.sizes() == want.sizes())
        << describe() << " rank " << rank << " has " << got.sizes();
    ASSERT_TRUE(at::equal(got, want)) << describe() << " rank " << rank << "\n"
                                      << got << "\n"
                                      << want;
  }

  void expect_bits() {
    const auto& parts = oracle_.odd_parts(test_);
    const MeshShape& mesh = test_.to.mesh();
    for (const auto rank : mesh.ranks()) {
      expect_part(rank, output_of(rank).view(carrier_of(test_.dtype)),
                  parts[static_cast<std::size_t>(*mesh.position_of(rank))]);
    }
  }

  /// Puts the ranks' contributions together to whole tensors, reduces them and compares.
  void expect_contributions(const at::Tensor& expected) {
    const auto assembled = [&](const Coordinate& partial) {
      at::Tensor whole = at::zeros(test_.to.shape(), test_.dtype);
      for (const auto rank : test_.to.mesh().ranks()) {
        const Coordinate at = *test_.to.mesh().coordinate_of(rank);
        bool same = true;
        for (std::size_t d = 0; d < at.size(); ++d) {
          if (is_partial(test_.to.placements()[d])) same &= at[d] == partial[d];
        }
        if (same) scatter(whole, *test_.to.part_of(rank), output_of(rank));
      }
      return whole;
    };
    const at::Tensor got = value_of(test_.to, assembled);
    const auto wide = at::isComplexType(test_.dtype) ? at::kComplexDouble : at::kDouble;
    ASSERT_TRUE(at::allclose(got.to(wide), expected.to(wide))) << describe() << "\n"
                                                               << got << "\n"
                                                               << expected;
  }

  static void scatter(const at::Tensor& whole, const Part& part, const at::Tensor& local) {
    if (part.dims.empty()) {
      whole.copy_(local);
      return;
    }
    at::Tensor flat = at::arange(whole.numel(), at::kLong).view(whole.sizes());
    flat = part_of(flat, part);
    whole.view(-1).index_copy_(0, flat.view(-1), local.reshape(-1));
  }

  MoveCase test_;
  Oracle& oracle_;
  const std::vector<at::Tensor>& inputs_;
  std::vector<at::Tensor> outputs_;
};

/// The moves of the test that runs.
std::int64_t& moves() {
  static std::int64_t count = 0;
  return count;
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
  const bool bits = moves_bits(test);
  const at::Tensor whole =
      bits ? odd_bits(test.from.shape(), test.dtype, contribution_number(test.from, *coordinate))
           : contribution(test.from, *coordinate, test.dtype);
  at::Tensor local = part_of(whole, part);
  if (bits) local = local.view(test.dtype);
  if (!test.strided || local.dim() == 0) return local;
  // The same values in columns, and of these every other element only.
  return at::stack({local, local}, -1).transpose(0, -2).contiguous().transpose(0, -2).select(-1, 0);
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
  moves() += static_cast<std::int64_t>(cases.size());
  Oracle oracle(ranks);
  std::vector<Checker> checkers;
  checkers.reserve(cases.size());
  for (const auto& each : cases) checkers.emplace_back(each, oracle);
  const bool async_op = options.in_flight > 1;
  const auto run = [&](World& world) {
    if (options.indirect) {
      // All cases of a list have the same meshes.
      make_indirect(world, cases.front().from.mesh());
      make_indirect(world, cases.front().to.mesh());
    }
    for (std::size_t first = 0; first < cases.size(); first += options.in_flight) {
      const std::size_t end = std::min(first + options.in_flight, cases.size());
      for (std::size_t i = first; i < end; ++i) checkers[i].start(world, async_op);
      // Last begun, first waited for.
      for (std::size_t i = end; i > first; --i) checkers[i - 1].finish(world);
    }
  };
  ASSERT_NO_THROW(run_ranks(ranks, run, test_options()));
  for (std::size_t i = 0; i < cases.size() && !::testing::Test::HasFatalFailure(); ++i) {
    checkers[i].expect_right();
  }
}

std::int64_t take_moves() { return std::exchange(moves(), 0); }

}  // namespace tessera::test
