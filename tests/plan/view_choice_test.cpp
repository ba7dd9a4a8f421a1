#include "tessera/plan/view_choice.h"

#include <random>

#include <gmock/gmock.h>

#include "support/random_layout.h"
#include "tessera/base/error.h"

namespace tessera {
namespace {

using testing::HasSubstr;

Layout layout_of(const char* mesh, const char* placements, Shape shape) {
  return Layout(MeshShape::parse(mesh), parse_placements(placements), std::move(shape));
}

std::string output_of(const char* mesh, const char* placements, Shape from, const Shape& to) {
  const Layout layout = layout_of(mesh, placements, std::move(from));
  const ViewChoice choice = choose_view(layout, to);
  return concat(choice.input == layout ? "stays " : "moves ", choice.output.placements_text());
}

TEST(ViewChoiceTest, EvenCutsStay) {
  EXPECT_EQ(output_of("2", "S0", {8, 6}, {48}), "stays [S(0)]");
  EXPECT_EQ(output_of("2", "S1", {8, 6}, {48}), "stays [SS(0,8)]");
  EXPECT_EQ(output_of("2", "S0", {48}, {8, 6}), "stays [S(0)]");
  EXPECT_EQ(output_of("2", "SS(0,8)", {48}, {8, 6}), "stays [S(1)]");
  EXPECT_EQ(output_of("2,2", "S0,S1", {4, 6}, {24}), "stays [S(0),SS(0,2)]");
  EXPECT_EQ(output_of("2,2", "S0,S0", {4, 6}, {2, 2, 6}), "stays [S(0),S(1)]");
  EXPECT_EQ(output_of("2", "S0", {4, 6}, {4, 1, 2, 3}), "stays [S(0)]");
  EXPECT_EQ(output_of("2", "P", {4, 6}, {24}), "stays [P(sum)]");
  // Uneven ones too, where a dim only gets other neighbours.
  EXPECT_EQ(output_of("2,2", "S0,S1", {5, 4}, {5, 2, 2}), "stays [S(0),S(1)]");
  EXPECT_EQ(output_of("2", "S0", {5, 2}, {1, 5, 1, 2}), "stays [S(1)]");
}

TEST(ViewChoiceTest, CutsThatFallAcrossAreGivenUp) {
  EXPECT_EQ(output_of("4", "S0", {8, 6}, {6, 8}), "moves [R]");
  EXPECT_EQ(output_of("2", "S0", {5, 2}, {10}), "moves [R]");
  EXPECT_EQ(output_of("2", "S1", {2, 3}, {6}), "moves [R]");
  EXPECT_EQ(output_of("2,2", "S0,S1", {5, 4}, {20}), "moves [R,SS(0,5)]");
}

TEST(ViewChoiceTest, DifferentNumbersOfElementsAreRefused) {
  try {
    (void)choose_view(layout_of("2", "S0", {4}), {5});
    FAIL() << "did not throw";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("shape [5] of 5 elements given for [4][S(0)]"));
  }
}

/// Row-major numbers of a part's elements, in the order in which the rank holds them.
std::vector<std::int64_t> elements(const Part& part, const Shape& shape) {
  std::vector<std::int64_t> numbers = {0};
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    std::vector<std::int64_t> next;
    for (const auto number : numbers) {
      for (const auto& run : part.dims[dim].runs()) {
        for (auto i = run.begin; i < run.end(); ++i) next.push_back(number * shape[dim] + i);
      }
    }
    numbers = std::move(next);
  }
  return numbers;
}

/// A shape with the same number of elements, made by merging and splitting dims at random.
Shape reshaped(const Shape& shape, std::mt19937& random) {
  Shape factors;
  for (auto size : shape) {
    for (std::int64_t factor = 2; factor <= size; ++factor) {
      while (size % factor == 0) {
        factors.push_back(factor);
        size /= factor;
      }
    }
  }
  Shape result;
  for (const auto factor : factors) {
    if (result.empty() || random() % 2 == 0) {
      result.push_back(factor);
    } else {
      result.back() *= factor;
    }
    if (random() % 8 == 0) result.push_back(1);
  }
  return result;
}

TEST(ViewChoiceTest, EveryRankKeepsItsElementsInOrder) {
  const auto sizes = std::vector<std::int64_t>{1, 2, 3, 4, 5, 6, 7, 8, 12};
  const auto meshes = {"1", "2", "3", "4", "2,2", "2,3", "2,2,2"};
  int kept = 0;
  for (std::uint32_t seed = 0; seed < 20'000; ++seed) {
    SCOPED_TRACE(concat("seed ", seed));
    std::mt19937 random(seed);
    const MeshShape mesh = MeshShape::parse(std::data(meshes)[random() % meshes.size()]);
    Shape shape;
    for (std::size_t dim = 0; dim < 1 + random() % 3; ++dim) {
      shape.push_back(sizes[random() % sizes.size()]);
    }
    Placements placements;
    for (std::int64_t dim = 0; dim < mesh.ndim(); ++dim) {
      const auto tensor_dim = static_cast<std::int64_t>(random() % shape.size());
      switch (random() % 4) {
        case 0:
          placements.emplace_back(Replicate());
          break;
        case 1:
          placements.emplace_back(StridedShard(tensor_dim, 1 + random() % 4));
          break;
        default:
          placements.emplace_back(Shard(tensor_dim));
      }
    }
    std::vector<std::int64_t> order;
    for (std::int64_t dim = 0; dim < mesh.ndim(); ++dim) order.push_back(dim);
    std::shuffle(order.begin(), order.end(), random);
    const Layout from(mesh, placements, shape, order);
    const Shape to = reshaped(shape, random);
    const ViewChoice choice = choose_view(from, to);
    kept += choice.input == from ? 1 : 0;
    ASSERT_EQ(choice.output.shape(), to);
    for (std::int64_t position = 0; position < mesh.num_ranks(); ++position) {
      ASSERT_EQ(elements(choice.input.part_at(position), shape),
                elements(choice.output.part_at(position), to))
          << from << " as " << choice.input << " -> " << choice.output << ", position " << position;
    }
  }
  // The test would say nothing if everything were replicated first.
  EXPECT_GT(kept, 5'000);
}

}  // namespace
}  // namespace tessera
