#include "tessera/comm/box_copy.h"

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "support/random_layout.h"
#include "tessera/base/concat.h"
#include "tessera/comm/box_loops.h"
#include "tessera/comm/stream_copy.h"

namespace tessera::test {
namespace {

using Box = std::vector<Extent>;

at::Tensor numbered(const std::vector<std::int64_t>& sizes, at::ScalarType dtype) {
  std::int64_t count = 1;
  for (const auto size : sizes) count *= size;
  return at::arange(count, at::kLong).remainder(251).to(dtype).view(sizes);
}

void expect_copied(const at::Tensor& whole, const Box& from, const at::Tensor& out, const Box& to) {
  at::Tensor expected = out.clone();
  detail::box_view(expected, to).copy_(detail::box_view(whole, from));
  detail::copy_box(out, to, whole, from);
  EXPECT_TRUE(at::equal(out, expected));
}

/// Extents of the same sizes somewhere within the two shapes.
std::pair<Box, Box> draw_boxes(Random& random, at::IntArrayRef in, at::IntArrayRef out) {
  std::pair<Box, Box> boxes;
  for (std::size_t d = 0; d < in.size(); ++d) {
    const std::int64_t most = std::min(in[d], out[d]);
    const std::int64_t size = random.one_in(20) ? 0 : random.between((most + 1) / 2, most);
    boxes.first.push_back({random.between(0, in[d] - size), size});
    boxes.second.push_back({random.between(0, out[d] - size), size});
  }
  return boxes;
}

TEST(BoxCopyTest, RandomBoxesOfEverySizeOfValue) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(concat("seed ", seed));
    Random random(seed);
    const auto dtype = random.pick(
        std::vector{at::kByte, at::kShort, at::kFloat, at::kDouble, at::kComplexDouble});
    const at::Tensor in = numbered({random.between(1, 9), random.between(1, 40), 33}, dtype);
    const at::Tensor out = at::zeros({random.between(1, 9), random.between(1, 40), 29}, dtype);
    const auto [from, to] = draw_boxes(random, in.sizes(), out.sizes());
    expect_copied(in, from, out, to);
    expect_copied(in.transpose(0, 1), {from[1], from[0], from[2]}, out.transpose(0, 1),
                  {to[1], to[0], to[2]});
  }
}

TEST(BoxCopyTest, LargeBoxesInAnyPlace) {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE(concat("seed ", seed));
    Random random(seed);
    // Of bytes, so that rows begin and end at any address.
    const at::Tensor in = numbered({2, 1500, 1301}, at::kByte);
    const at::Tensor out = at::zeros({2, 1500, 1211}, at::kByte);
    auto [from, to] = draw_boxes(random, in.sizes(), out.sizes());
    from[0] = to[0] = {0, 2};
    const detail::BoxLoops loops(out, to, in, from);
#ifdef __SSE2__
    const auto row = static_cast<std::size_t>(to[2].size);
    const bool is_large = 2 * to[1].size * to[2].size >= 1 << 20;
    detail::BoxLoops rows = loops;
    if (!rows.loops.empty()) rows.loops.pop_back();
    EXPECT_EQ(detail::is_worth_streaming(rows, row), is_large && row >= 512);
#endif
    expect_copied(in, from, out, to);
  }
}

TEST(BoxCopyTest, PackingIsUndoneByUnpacking) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(concat("seed ", seed));
    Random random(seed);
    const auto dtype = random.pick(std::vector{at::kByte, at::kFloat, at::kComplexDouble});
    at::Tensor in = numbered({random.between(1, 9), random.between(1, 9), 7}, dtype);
    if (random.one_in(2)) in = in.permute({2, 0, 1});
    const auto [box, unused] = draw_boxes(random, in.sizes(), in.sizes());
    const at::Tensor expected = detail::box_view(in, box).contiguous();
    const at::Tensor packed = at::zeros_like(expected);
    detail::pack_box(static_cast<std::byte*>(packed.data_ptr()), in, box);
    EXPECT_TRUE(at::equal(packed, expected));
    const at::Tensor back = at::zeros_like(in);
    detail::unpack_box(back, box, static_cast<const std::byte*>(packed.const_data_ptr()));
    EXPECT_TRUE(at::equal(detail::box_view(back, box), expected));
    EXPECT_TRUE(at::equal(back.sum(), expected.sum())) << "nothing else was written";
  }
}

}  // namespace
}  // namespace tessera::test
