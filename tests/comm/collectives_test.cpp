#include "tessera/comm/collectives.h"

#include "comm/collectives_inputs.h"
#include "tessera/comm/device_mesh.h"
#include "tessera/layout/chunk.h"

// What all collectives have in common.

namespace tessera::test {
namespace {

TEST(CollectivesTest, StridesDoNotMatter) {
  on_every_rank_count([](World& world) {
    const auto group = world.group();
    const std::int64_t n = world.size();
    for (const Sizes& shape : std::vector<Sizes>{{4 * n}, {4 * n, 3}, {2 * n, 2, 3}}) {
      const auto all = patterns(shape, n, at::kDouble);
      const at::Tensor& x = all[static_cast<std::size_t>(world.rank())];
      const at::Tensor odd = with_odd_strides(x);
      ASSERT_FALSE(odd.is_contiguous() && odd.numel() > 1);
      expect_same_bits(all_reduce(odd, ReduceOp::sum, group), all_reduce(x, ReduceOp::sum, group));
      for (std::int64_t dim = 0; dim < x.dim(); ++dim) {
        expect_same_bits(all_gather(odd, dim, group), all_gather(x, dim, group));
        expect_same_bits(reduce_scatter(odd, dim, ReduceOp::sum, group),
                         reduce_scatter(x, dim, ReduceOp::sum, group));
        expect_same_bits(scatter(odd, dim, n - 1, group), scatter(x, dim, n - 1, group));
        expect_same_bits(gather(odd, dim, n - 1, group), gather(x, dim, n - 1, group));
      }
      expect_same_bits(all_to_all(odd, {}, {}, group), all_to_all(x, {}, {}, group));
      expect_same_bits(broadcast(odd, 0, group), broadcast(x, 0, group));
      EXPECT_TRUE(all_reduce(odd, ReduceOp::sum, group).is_contiguous());
    }
    const auto all = patterns({2, 3}, n, at::kComplexFloat);
    const at::Tensor x = all[static_cast<std::size_t>(world.rank())].conj();
    expect_same_values(all_gather(x, 0, group), at::cat(all).conj().resolve_conj());
    expect_same_values(all_reduce(x, ReduceOp::sum, group),
                       reduced(all, ReduceOp::sum).conj().resolve_conj());
    expect_same_values(all_reduce(at::imag(x), ReduceOp::sum, group),
                       -at::imag(reduced(all, ReduceOp::sum)));
  });
}

TEST(CollectivesTest, MovedValuesKeepTheirBits) {
  run_ranks(3, [](World& world) {
    const auto group = world.group();
    // A NaN with a payload, a signalling one, -0, a denormal.
    const at::Tensor bits =
        at::tensor({0x7fc12345, 0x7f812345, static_cast<int>(0x80000000), 1}, at::kInt) +
        (world.rank() == 0 ? 0 : 1);
    const at::Tensor x = bits.view(at::kFloat);
    const at::Tensor first =
        at::tensor({0x7fc12345, 0x7f812345, static_cast<int>(0x80000000), 1}, at::kInt);
    const at::Tensor gathered = all_gather(x, 0, group);
    expect_same_bits(gathered.view(at::kInt), at::cat({first, first + 1, first + 1}));
    expect_same_bits(broadcast(x, 0, group).view(at::kInt), first);
    expect_same_bits(permute(x, Sizes{1, 2, 0}, group).view(at::kInt),
                     world.rank() == 1 ? first : first + 1);
    expect_same_bits(
        all_gather(x.view({2, 2}), 1, group).view(at::kInt),
        at::cat({first.view({2, 2}), first.view({2, 2}) + 1, first.view({2, 2}) + 1}, 1));
    expect_same_bits(scatter(x, 0, 0, group, {.sizes = {4, 0, 0}}).view(at::kInt),
                     world.rank() == 0 ? first : at::empty({0}, at::kInt));
  });
}

TEST(CollectivesTest, TensorsWithoutElementsMoveNothing) {
  on_every_rank_count([](World& world) {
    const auto group = world.group();
    const at::Tensor x = at::empty({0, 3});
    expect_same_bits(all_reduce(x, ReduceOp::sum, group), x);
    expect_same_bits(all_gather(x, 0, group), x);
    expect_same_bits(all_gather(x, 1, group), at::empty({0, 3 * world.size()}));
    expect_same_bits(reduce_scatter(x, 0, ReduceOp::sum, group), x);
    expect_same_bits(all_to_all(x, {}, {}, group), x);
    expect_same_bits(all_to_all(x, {}, Sizes(static_cast<std::size_t>(world.size()), 0), group), x);
    expect_same_bits(broadcast(x, 0, group), x);
    expect_same_bits(scatter(x, 0, 0, group), x);
    expect_same_bits(gather(x, 0, 0, group), x);
    expect_same_bits(permute(x, Sizes(static_cast<std::size_t>(world.size()), -1), group), x);
  });
}

TEST(CollectivesTest, ResultsAreFresh) {
  on_every_rank_count([](World& world) {
    const auto group = world.group();
    const at::Tensor x = at::ones({4});
    const auto results = {all_reduce(x, ReduceOp::max, group),
                          all_gather(x, 0, group),
                          reduce_scatter(x, 0, ReduceOp::max, group),
                          broadcast(x, 0, group),
                          scatter(x, 0, 0, group,
                                  {.sizes =
                                       [&] {
                                         Sizes sizes(static_cast<std::size_t>(world.size()), 0);
                                         sizes[0] = 4;
                                         return sizes;
                                       }()}),
                          gather(x, 0, 0, group),
                          permute(x, {{0, 0}}, group)};
    for (const auto& result : results) result.view(-1).fill_(5);
    expect_same_bits(x, at::ones({4}));
  });
}

TEST(CollectivesTest, MeshesAndTheirDimsAreGroups) {
  run_ranks(4, [](World& world) {
    const auto mesh = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
    const at::Tensor x = at::full({1}, static_cast<double>(world.rank()), at::kDouble);
    const auto sum = [&](const Group& group) {
      return all_reduce(x, ReduceOp::sum, group).item<double>();
    };
    EXPECT_EQ(sum(mesh), 6);
    EXPECT_EQ(sum(mesh["tp"]), world.rank() / 2 == 0 ? 1 : 5);
    EXPECT_EQ(sum(mesh.group("dp")), world.rank() % 2 == 0 ? 2 : 4);
    const at::Tensor column = all_gather(x, 0, mesh["dp"]);
    EXPECT_EQ(column[0].item<double>(), world.rank() % 2);
    barrier(mesh);
    barrier(mesh["tp"]);
  });
}

TEST(CollectivesTest, ListsTravelTogether) {
  on_every_rank_count([](World& world) {
    const auto group = world.group();
    const std::int64_t n = world.size();
    const auto rank = static_cast<std::size_t>(world.rank());
    const std::vector<Sizes> shapes = {{2, 3}, {4, 1}, {0, 2}, {3, 2}};
    const std::vector<at::ScalarType> types = {at::kFloat, at::kLong, at::kFloat, at::kBFloat16};
    std::vector<Tensors> all;
    Tensors own;
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      all.push_back(patterns(shapes[i], n, types[i]));
      own.push_back(i % 2 == 0 ? all[i][rank] : with_odd_strides(all[i][rank]));
    }
    const auto sums = all_reduce(own, ReduceOp::sum, group);
    const auto gathered = all_gather(own, -1, group);
    const auto scattered = reduce_scatter(own, 0, ReduceOp::max, group);
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      expect_same_values(sums[i], reduced(all[i], ReduceOp::sum));
      expect_same_bits(gathered[i], at::cat(all[i], -1));
      const Extent piece = chunk_extent(shapes[i][0], n, world.rank());
      expect_same_values(scattered[i],
                         reduced(all[i], ReduceOp::max).narrow(0, piece.begin, piece.size));
    }
    EXPECT_TRUE(all_reduce(Tensors{}, ReduceOp::sum, group).empty());
    EXPECT_TRUE(all_gather(Tensors{}, 0, group).empty());
    EXPECT_TRUE(reduce_scatter(Tensors{}, 0, ReduceOp::sum, group).empty());
  });
}

TEST(CollectivesTest, WithoutChecksTheyDoTheSame) {
  WorldOptions options = test_options();
  options.check = false;
  run_ranks(
      3,
      [](World& world) {
        const auto group = world.group();
        const at::Tensor x = at::full({world.rank(), 2}, static_cast<double>(world.rank()));
        EXPECT_EQ(all_gather(x, 0, group).sum().item<double>(), 10);
        EXPECT_EQ(all_reduce(at::ones({2}), ReduceOp::sum, group).sum().item<double>(), 6);
        EXPECT_EQ(all_to_all(at::ones({6}), {2, 2, 2}, {2, 2, 2}, group).numel(), 6);
        EXPECT_EQ(all_to_all(at::ones({6}), {}, {1, 2, 3}, group).numel(), 3 * (world.rank() + 1));
        EXPECT_EQ(gather(x, 0, 1, group).size(0), world.rank() == 1 ? 3 : 0);
        EXPECT_EQ(all_gather_object("ab", group).size(), 3U);
        Tensors pieces;
        if (world.rank() == 2) pieces = {at::ones({1}), at::ones({2}), at::ones({3})};
        EXPECT_EQ(scatter(pieces, 2, group).numel(), world.rank() + 1);
      },
      options);
}

}  // namespace
}  // namespace tessera::test
