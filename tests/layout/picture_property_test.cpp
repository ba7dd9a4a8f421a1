// What is drawn agrees with `Layout::part_at`, on random layouts.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "support/random_layout.h"
#include "tessera/layout/picture.h"
#include "tessera/layout/picture_cells.h"

namespace tessera {
namespace {

using picture::Segment;
using picture::Segments;
using test::Random;
using test::RecipeOptions;

using Ranks = std::vector<std::int64_t>;

constexpr std::int64_t kAll = std::int64_t{1} << 30;
constexpr std::uint64_t kCases = 4'000;

const RecipeOptions kRecipes{
    .mesh = {.max_ranks = 12, .rank_maps = true},
    .shape = {.max_numel = 400},
    .placement = {.partial_ops = {ReduceOp::sum, ReduceOp::avg, ReduceOp::max}}};

/// Runs `check(layout)` on random layouts, until one fails.
template <typename Check>
void for_each_layout(const RecipeOptions& options, const Check& check) {
  for (std::uint64_t seed = 0; seed < kCases; ++seed) {
    Random random(seed);
    const auto recipe = random_recipe(random, options);
    check(recipe.layout());
    ASSERT_FALSE(::testing::Test::HasFailure()) << "seed " << seed << ": " << recipe;
  }
}

bool owns(const IndexSet& owned, std::int64_t index) {
  return std::any_of(owned.runs().begin(), owned.runs().end(),
                     [&](const Extent& run) { return run.begin <= index && index < run.end(); });
}

/// Who owns an element, by looking at every rank's part.
class OwnersByPart {
 public:
  explicit OwnersByPart(const Layout& layout) {
    for (const auto rank : layout.mesh().ranks()) parts_[rank] = *layout.part_of(rank);
  }

  /// The ranks whose part has the element at `index`, ascending.
  [[nodiscard]] Ranks at(const std::vector<std::int64_t>& index) const {
    Ranks ranks;
    for (const auto& [rank, part] : parts_) {
      bool all = true;
      for (std::size_t dim = 0; dim < index.size() && all; ++dim) {
        all = owns(part.dims[dim], index[dim]);
      }
      if (all) ranks.push_back(rank);
    }
    return ranks;
  }

 private:
  std::map<std::int64_t, Part> parts_;
};

/// Calls `visit(index)` for every element of a tensor of `shape`.
template <typename Visit>
void for_each_element(const Shape& shape, const Visit& visit) {
  std::int64_t numel = 1;
  for (const auto size : shape) numel *= size;
  for (std::int64_t flat = 0; flat < numel; ++flat) {
    std::vector<std::int64_t> index(shape.size());
    std::int64_t rest = flat;
    for (std::size_t dim = shape.size(); dim-- > 0;) {
      index[dim] = rest % shape[dim];
      rest /= shape[dim];
    }
    visit(index);
  }
}

const Segment* segment_at(const Segments& segments, std::int64_t index) {
  for (const auto& segment : segments.shown) {
    if (segment.extent.begin <= index && index < segment.extent.end()) return &segment;
  }
  return nullptr;
}

TEST(PictureCellsTest, SegmentsTileEveryDimAndDifferFromTheirNeighbours) {
  for_each_layout(kRecipes, [](const Layout& layout) {
    for (std::int64_t dim = 0; dim < layout.ndim(); ++dim) {
      const Segments segments = picture::segments_of(layout, dim, kAll);
      EXPECT_FALSE(segments.gap.has_value());
      std::int64_t next = 0;
      const Segment* previous = nullptr;
      for (const auto& segment : segments.shown) {
        EXPECT_EQ(segment.extent.begin, next);
        EXPECT_GT(segment.extent.size, 0);
        if (previous != nullptr) {
          EXPECT_NE(previous->chunks, segment.chunks);
        }
        next = segment.extent.end();
        previous = &segment;
      }
      EXPECT_EQ(next, layout.shape()[static_cast<std::size_t>(dim)]);
    }
  });
}

TEST(PictureCellsTest, ElidedSegmentsAreTheFirstAndTheLastOnes) {
  for_each_layout(kRecipes, [](const Layout& layout) {
    for (std::int64_t dim = 0; dim < layout.ndim(); ++dim) {
      const Segments all = picture::segments_of(layout, dim, kAll);
      for (const std::int64_t most : {3, 4, 6}) {
        const Segments some = picture::segments_of(layout, dim, most);
        EXPECT_EQ(some.gap.has_value(), std::ssize(all.shown) > most);
        EXPECT_EQ(std::ssize(some.shown),
                  std::min(std::ssize(all.shown), some.gap ? most - 1 : most));
        const std::size_t skipped = all.shown.size() - some.shown.size();
        for (std::size_t i = 0; i < some.shown.size(); ++i) {
          const auto& same = all.shown[some.gap && i >= *some.gap ? i + skipped : i];
          EXPECT_EQ(some.shown[i].extent, same.extent);
          EXPECT_EQ(some.shown[i].chunks, same.chunks);
        }
      }
    }
  });
}

TEST(PictureCellsTest, OwnersAreTheRanksWhosePartHasTheElement) {
  for_each_layout(kRecipes, [](const Layout& layout) {
    const OwnersByPart by_part(layout);
    std::vector<Segments> along;
    for (std::int64_t dim = 0; dim < layout.ndim(); ++dim) {
      along.push_back(picture::segments_of(layout, dim, kAll));
    }
    for_each_element(layout.shape(), [&](const std::vector<std::int64_t>& index) {
      std::vector<const Segment*> segments;
      for (std::size_t dim = 0; dim < along.size(); ++dim) {
        segments.push_back(segment_at(along[dim], index[dim]));
      }
      EXPECT_EQ(picture::owners_of(layout, segments).all_ranks(), by_part.at(index));
    });
  });
}

TEST(PictureCellsTest, GroupsDifferInPartialMeshDimsOnly) {
  for_each_layout(kRecipes, [](const Layout& layout) {
    const std::vector<const Segment*> first(static_cast<std::size_t>(layout.ndim()), nullptr);
    for (const auto& group : picture::owners_of(layout, first).groups) {
      const auto front = *layout.mesh().coordinate_of(group.front());
      for (const auto rank : group) {
        const auto coordinate = *layout.mesh().coordinate_of(rank);
        for (std::size_t dim = 0; dim < front.size(); ++dim) {
          if (!is_partial(layout.placements()[dim])) {
            EXPECT_EQ(coordinate[dim], front[dim]);
          }
        }
      }
      if (!layout.has_partial()) {
        EXPECT_EQ(group.size(), 1U);
      }
    }
  });
}

TEST(PictureCellsTest, RanksWithoutElementsHaveEmptyParts) {
  for_each_layout(kRecipes, [](const Layout& layout) {
    const Ranks empty = picture::ranks_without_elements(layout);
    for (const auto rank : layout.mesh().ranks()) {
      EXPECT_EQ(std::binary_search(empty.begin(), empty.end(), rank),
                layout.part_of(rank)->numel() == 0);
    }
  });
}

TEST(PictureCellsTest, RankListsAreShort) {
  const auto list = [](const Ranks& ranks) { return picture::rank_list(ranks, 14, "..."); };
  EXPECT_EQ(list({}), "");
  EXPECT_EQ(list({3}), "3");
  EXPECT_EQ(list({0, 1}), "0,1");
  EXPECT_EQ(list({0, 1, 2, 3}), "0-3");
  EXPECT_EQ(list({0, 1, 2, 5, 6}), "0-2,5,6");
  EXPECT_EQ(list({0, 2, 4, 6, 8, 10, 12, 14, 16}), "0,2,...,16");
  EXPECT_EQ(list({1000, 2000, 3000, 4000}), "1000,...,4000");
}

/// The numbers in `text`, whatever is between them; `0-3` counts as 0, 1, 2, 3.
Ranks numbers_in(std::string text) {
  std::replace(text.begin(), text.end(), ',', ' ');
  std::istringstream stream(text);
  Ranks numbers;
  for (std::string word; stream >> word;) {
    const std::size_t dash = word.find('-');
    const std::int64_t first = std::stoll(word);
    const std::int64_t last = dash == std::string::npos ? first : std::stoll(word.substr(dash + 1));
    for (std::int64_t number = first; number <= last; ++number) numbers.push_back(number);
  }
  return numbers;
}

/// A picture in ASCII, read as a person would: cut indices at the lines, ranks in the cells.
struct ReadPicture {
  Ranks row_cuts;
  Ranks column_cuts;
  std::vector<std::vector<Ranks>> cells;

  ReadPicture(const std::string& text, std::int64_t ndim) {
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) {
      const std::size_t box = line.find_first_of("+|");
      if (box == std::string::npos) {
        if (column_cuts.empty()) column_cuts = numbers_in(line);
      } else if (line[box] == '+') {
        if (ndim == 2) row_cuts.push_back(std::stoll(line.substr(0, box)));
      } else {
        auto& row = cells.emplace_back();
        std::istringstream inside(line.substr(box + 1));
        for (std::string cell; std::getline(inside, cell, '|');) row.push_back(numbers_in(cell));
      }
    }
  }

  /// Which cell an index is in.
  static std::size_t slot(const Ranks& cuts, std::int64_t index) {
    const auto above = std::upper_bound(cuts.begin(), cuts.end(), index);
    return static_cast<std::size_t>(above - cuts.begin()) - 1;
  }
};

TEST(PictureTest, PicturesReadBackAreTheLayout) {
  const RecipeOptions recipes{
      .mesh = {.max_ranks = 8, .rank_maps = true}, .shape = {.max_dims = 2}, .placement = {}};
  const PictureOptions options{
      .ascii = true, .caption = false, .max_cells = 64, .max_width = 10'000};
  for_each_layout(recipes, [&](const Layout& layout) {
    if (layout.ndim() == 0 || layout.numel() == 0) return;
    const std::string text = draw(layout, options);
    if (text.find("...") != std::string::npos) return;  // A long list of ranks.
    const ReadPicture read(text, layout.ndim());
    const OwnersByPart by_part(layout);
    for_each_element(layout.shape(), [&](const std::vector<std::int64_t>& index) {
      const std::size_t row = index.size() == 2 ? ReadPicture::slot(read.row_cuts, index[0]) : 0;
      const std::size_t column = ReadPicture::slot(read.column_cuts, index.back());
      ASSERT_EQ(read.cells.at(row).at(column), by_part.at(index)) << text;
    });
  });
}

TEST(PictureTest, LinesFitTheWidth) {
  for_each_layout(kRecipes, [](const Layout& layout) {
    const std::string text = draw(layout, {.ascii = true, .caption = false, .max_width = 120});
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) {
      if (line.find(": the ") != std::string::npos) continue;  // The legend.
      EXPECT_LE(line.size(), 120U) << text;
      EXPECT_TRUE(line.empty() || line.back() != ' ') << text;
    }
  });
}

}  // namespace
}  // namespace tessera
