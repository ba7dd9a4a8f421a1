#include <numeric>

#include "comm/collectives_inputs.h"
#include "tessera/comm/collectives.h"
#include "tessera/layout/chunk.h"

// Every collective that moves values, in every dtype, against slices of the members' known inputs.

namespace tessera::test {
namespace {

/// What rank `rank` has of uneven inputs: of these sizes along a dim.
Sizes uneven_sizes(std::int64_t ranks) {
  const Sizes sizes = {2, 0, 3, 1};
  return {sizes.begin(), sizes.begin() + ranks};
}

/// Shapes in which the size of `dim` is left open.
struct OpenShape {
  Sizes shape;
  std::int64_t dim;

  [[nodiscard]] Sizes with(std::int64_t size) const {
    Sizes sizes = shape;
    sizes[static_cast<std::size_t>(dim)] = size;
    return sizes;
  }
};
const std::vector<OpenShape> kOpenShapes = {{{0}, 0},       {{0, 3}, 0},    {{3, 0}, 1},
                                            {{2, 0, 3}, 1}, {{1, 0, 2}, 1}, {{0, 0}, 0}};

TEST(AllGatherTest, UnevenInputsOfEveryDtypeAreConcatenated) {
  on_every_rank_count([](World& world) {
    for (const auto type : every_dtype()) {
      SCOPED_TRACE(c10::toString(type));
      for (const auto& open : kOpenShapes) {
        const Sizes sizes = uneven_sizes(world.size());
        Tensors all;
        for (std::int64_t r = 0; r < world.size(); ++r) {
          all.push_back(pattern(open.with(sizes[static_cast<std::size_t>(r)]), r, type));
        }
        const at::Tensor& x = all[static_cast<std::size_t>(world.rank())];
        const at::Tensor expected = at::cat(all, open.dim);
        expect_same_bits(all_gather(x, open.dim, world.group()), expected);
        expect_same_bits(all_gather(x, open.dim - x.dim(), world.group(), {.sizes = sizes}),
                         expected);
        const at::Tensor gathered = gather(x, open.dim, world.size() - 1, world.group());
        const bool is_root = world.rank() == world.size() - 1;
        expect_same_bits(gathered, is_root ? expected : expected.narrow(open.dim, 0, 0));
        expect_same_bits(gather(x, open.dim, 0, world.group(), {.sizes = sizes}),
                         world.rank() == 0 ? expected : expected.narrow(open.dim, 0, 0));
      }
    }
  });
}

TEST(AllGatherTest, TensorsWithoutDimsCountAsSingleElements) {
  on_every_rank_count([](World& world) {
    const at::Tensor x = at::scalar_tensor(10 * world.rank(), at::kFloat);
    const at::Tensor expected = at::arange(world.size()).to(at::kFloat) * 10;
    expect_same_bits(all_gather(x, 0, world.group()), expected);
    expect_same_bits(gather(x, -1, 0, world.group()),
                     world.rank() == 0 ? expected : expected.narrow(0, 0, 0));
  });
}

TEST(ReduceScatterTest, PiecesHaveTheSizesGiven) {
  on_every_rank_count([](World& world) {
    const Sizes sizes = uneven_sizes(world.size());
    const auto whole = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
    for (const auto& open : kOpenShapes) {
      const auto all = patterns(open.with(whole), world.size(), at::kFloat);
      const auto rank = static_cast<std::size_t>(world.rank());
      const at::Tensor expected =
          at::split_with_sizes(reduced(all, ReduceOp::max), sizes, open.dim)[rank];
      expect_same_values(
          reduce_scatter(all[rank], open.dim, ReduceOp::max, world.group(), {.sizes = sizes}),
          expected);
      for (std::int64_t root = 0; root < world.size(); ++root) {
        const at::Tensor& roots = all[static_cast<std::size_t>(root)];
        expect_same_bits(scatter(all[rank], open.dim, root, world.group(), {.sizes = sizes}),
                         at::split_with_sizes(roots, sizes, open.dim)[rank]);
      }
    }
  });
}

TEST(ScatterTest, EveryDtypeIsCutIntoChunks) {
  on_every_rank_count([](World& world) {
    for (const auto type : every_dtype()) {
      SCOPED_TRACE(c10::toString(type));
      const auto all = patterns({5, 3}, world.size(), type);
      const std::int64_t root = world.size() / 2;
      for (const std::int64_t dim : {0, -1}) {
        const Extent own = chunk_extent(all[0].size(dim), world.size(), world.rank());
        expect_same_bits(
            scatter(all[static_cast<std::size_t>(world.rank())], dim, root, world.group()),
            all[static_cast<std::size_t>(root)].narrow(dim, own.begin, own.size));
      }
    }
  });
}

TEST(ScatterTest, OnlyTheRootNeedsMemory) {
  run_ranks(3, [](World& world) {
    const at::Tensor whole = pattern({7, 2}, 1, at::kDouble);
    const at::Tensor x = world.rank() == 1 ? whole : at::empty({}, at::kDouble).expand({7, 2});
    expect_same_bits(scatter(x, 0, 1, world.group()),
                     at::chunk(whole, 3)[static_cast<std::size_t>(world.rank())]);
  });
}

TEST(ScatterTest, ListsCarryTheirShapes) {
  on_every_rank_count([](World& world) {
    const std::vector<Sizes> shapes = {{2, 3}, {}, {0, 4}, {5}};
    for (const auto type : every_dtype()) {
      for (std::int64_t root = 0; root < world.size(); ++root) {
        Tensors pieces;
        for (std::int64_t i = 0; i < world.size(); ++i) {
          pieces.push_back(pattern(shapes[static_cast<std::size_t>(i)], i, type));
        }
        const at::Tensor expected = pieces[static_cast<std::size_t>(world.rank())];
        if (world.rank() != root) pieces.clear();
        expect_same_bits(scatter(pieces, root, world.group()), expected);
      }
    }
  });
}

TEST(BroadcastTest, EverybodyGetsTheRootsBits) {
  on_every_rank_count([](World& world) {
    for (const auto type : every_dtype()) {
      SCOPED_TRACE(c10::toString(type));
      for (const Sizes& shape : std::vector<Sizes>{{}, {0}, {4}, {2, 3}}) {
        const auto all = patterns(shape, world.size(), type);
        for (std::int64_t root = 0; root < world.size(); ++root) {
          expect_same_bits(
              broadcast(all[static_cast<std::size_t>(world.rank())], root, world.group()),
              all[static_cast<std::size_t>(root)]);
        }
      }
    }
  });
}

/// How many rows rank `from` sends to rank `to`.
std::int64_t rows(std::int64_t from, std::int64_t to) { return (from * 2 + to * 3) % 4; }

Sizes row_counts(std::int64_t ranks, const std::function<std::int64_t(std::int64_t)>& count) {
  Sizes counts;
  for (std::int64_t i = 0; i < ranks; ++i) counts.push_back(count(i));
  return counts;
}

TEST(AllToAllTest, PiecesOfEveryDtypeArriveInTheOrderOfTheirSenders) {
  on_every_rank_count([](World& world) {
    const std::int64_t me = world.rank();
    const std::int64_t n = world.size();
    for (const auto type : every_dtype()) {
      SCOPED_TRACE(c10::toString(type));
      for (const Sizes& row : std::vector<Sizes>{{}, {2}, {0}, {2, 3}}) {
        const auto input = [&](std::int64_t from) {
          std::int64_t total = 0;
          for (std::int64_t to = 0; to < n; ++to) total += rows(from, to);
          Sizes shape = {total};
          shape.insert(shape.end(), row.begin(), row.end());
          return pattern(shape, from, type);
        };
        Tensors pieces;
        for (std::int64_t from = 0; from < n; ++from) {
          const Sizes splits = row_counts(n, [&](auto to) { return rows(from, to); });
          pieces.push_back(at::split_with_sizes(input(from), splits)[static_cast<std::size_t>(me)]);
        }
        const Sizes send = row_counts(n, [&](auto to) { return rows(me, to); });
        const Sizes receive = row_counts(n, [&](auto from) { return rows(from, me); });
        const at::Tensor expected = at::cat(pieces);
        expect_same_bits(all_to_all(input(me), receive, send, world.group()), expected);
        expect_same_bits(all_to_all(input(me), {}, send, world.group()), expected);
      }
    }
  });
}

TEST(AllToAllTest, WithoutSplitsEverybodyGetsTheSame) {
  on_every_rank_count([](World& world) {
    const std::int64_t n = world.size();
    const auto all = patterns({2 * n, 3}, n, at::kInt);
    Tensors pieces;
    for (const auto& x : all) pieces.push_back(x.narrow(0, 2 * world.rank(), 2));
    expect_same_bits(all_to_all(all[static_cast<std::size_t>(world.rank())], {}, {}, world.group()),
                     at::cat(pieces));
  });
}

TEST(PermuteTest, TensorsGoWhereThePairsSay) {
  on_every_rank_count([](World& world) {
    const std::int64_t n = world.size();
    for (const auto type : every_dtype()) {
      const auto all = patterns({2, 3}, n, type);
      const at::Tensor& x = all[static_cast<std::size_t>(world.rank())];
      Sizes ring;
      for (std::int64_t i = 0; i < n; ++i) ring.push_back((i + 1) % n);
      const auto before = static_cast<std::size_t>((world.rank() + n - 1) % n);
      expect_same_bits(permute(x, ring, world.group()), all[before]);
      // Only from the first to the last.
      const at::Tensor expected = world.rank() == n - 1 ? all[0] : at::zeros_like(x);
      expect_same_bits(permute(x, {{0, n - 1}}, world.group()), expected);
      expect_same_bits(permute(x, Sizes(static_cast<std::size_t>(n), -1), world.group()),
                       at::zeros_like(x));
    }
  });
}

TEST(SendTest, TensorsTravelAroundTheRanks) {
  for (const std::int64_t ranks : {2, 3, 4}) {
    run_ranks(
        ranks,
        [&](World& world) {
          const std::int64_t n = world.size();
          for (const auto type : every_dtype()) {
            const auto all = patterns({2, 3}, n, type);
            const at::Tensor& x = all[static_cast<std::size_t>(world.rank())];
            at::Tensor got;
            if (world.rank() == 0) {
              send(x.t(), 1, world.group(), 7);
              got = recv(x.t(), n - 1, world.group(), 7);
            } else {
              got = recv(x.t(), world.rank() - 1, world.group(), 7);
              send(x.t(), (world.rank() + 1) % n, world.group(), 7);
            }
            const auto before = static_cast<std::size_t>((world.rank() + n - 1) % n);
            expect_same_bits(got, all[before].t());
          }
          // Without elements there is still a meeting.
          if (world.rank() == 0) send(at::empty({0, 2}), 1, world.group());
          if (world.rank() == 1) {
            EXPECT_EQ(recv(at::empty({0, 2}), 0, world.group()).sizes(), (Sizes{0, 2}));
          }
        },
        test_options());
  }
}

TEST(AllGatherObjectTest, BytesOfAnyLengthArrive) {
  on_every_rank_count([](World& world) {
    const auto text_of = [](std::int64_t rank) {
      return rank == 1 ? std::string()
                       : std::string(static_cast<std::size_t>(3 * rank + 1), 'a') +
                             std::string("\0\xff", 2);
    };
    const auto all = all_gather_object(text_of(world.rank()), world.group());
    ASSERT_EQ(static_cast<std::int64_t>(all.size()), world.size());
    for (std::int64_t rank = 0; rank < world.size(); ++rank) {
      EXPECT_EQ(all[static_cast<std::size_t>(rank)], text_of(rank));
    }
    for (const auto& text : all_gather_object("", world.group())) EXPECT_EQ(text, "");
  });
}

}  // namespace
}  // namespace tessera::test
