#include "tour.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include "tessera/base/concat.h"
#include "tessera/base/units.h"
#include "tessera/layout/picture.h"
#include "tessera/plan/redistribute_plan.h"

namespace tessera::tools {
namespace {

/// One stop of the tour.
struct Stop {
  const char* title;
  /// Why it matters, in lines of at most 100 columns.
  std::vector<const char*> why;
  Layout from;
  Layout to;
  PlanOptions options = {};
  bool with_mesh = false;
  bool with_pictures = true;
};

Layout layout(const MeshShape& mesh, const char* placements, Shape shape) {
  return Layout(mesh, parse_placements(placements), std::move(shape));
}

std::vector<Stop> stops() {
  const MeshShape four = MeshShape::parse("tp=4");
  const MeshShape pair = MeshShape::parse("tp=2");
  const MeshShape grid = MeshShape::parse("dp=2,tp=4");
  const MeshShape others({3}, {"tp"}, {4, 5, 6});
  const Layout rows = layout(four, "S(0)", {8000, 8000});
  const Layout columns = layout(four, "S(1)", {8000, 8000});
  PlanOptions little_memory;
  little_memory.staging_budget = 4'000'000;
  return {
      {.title = "Rows to columns",
       .why = {"Every rank lacks a block of every other rank's rows, and receives just that."},
       .from = rows,
       .to = columns},
      {.title = "Both mesh dims change places",
       .why = {"Dim by dim, as PyTorch's DTensor goes, a rank receives 5 times what it holds; "
               "directly, 1 time."},
       .from = layout(grid, "S(0),S(1)", {8000, 8000}),
       .to = layout(grid, "S(1),S(0)", {8000, 8000}),
       .with_mesh = true},
      {.title = "Five over four",
       .why =
           {"Sizes need not divide: the chunks are 2, 2, 1 and 0 long, and nobody sends padding."},
       .from = layout(four, "S(0)", {5}),
       .to = layout(four, "R", {5})},
      {.title = "A sum, reduced where it is needed",
       .why = {"Gradients come as contributions of all ranks. Nobody needs all of the sum, so "
               "nobody gets it."},
       .from = layout(four, "P(sum)", {8000, 8000}),
       .to = layout(four, "S(1)", {8000, 8000})},
      {.title = "Four ranks hand over to three others",
       .why =
           {"From trainers to samplers, or to a job that restarts smaller: any mesh to any other."},
       .from = layout(four, "S(1)", {6000, 6000}),
       .to = layout(others, "S(1)", {6000, 6000})},
      {.title = "Strided shards",
       .why = {"Two fused matrices, each cut over both ranks: ranks alternate. To cut the whole "
               "instead, only the",
               "blocks in the middle change places."},
       .from = layout(pair, "SS(1,2)", {4000, 8000}),
       .to = layout(pair, "S(1)", {4000, 8000})},
      {.title = "Rows to columns again, with 4 MB of message buffers",
       .why =
           {"When memory is short, the exchange is cut into rounds: the same bytes, a lower peak."},
       .from = rows,
       .to = columns,
       .options = little_memory,
       .with_pictures = false},
  };
}

/// The least that the busiest rank receives when every rank of the destination first gets the whole
/// tensor.
std::int64_t bound_of_full_copy(const Stop& stop) {
  const MeshShape& mesh = stop.to.mesh();
  const Placements everywhere(static_cast<std::size_t>(mesh.ndim()), Replicate());
  return plan_redistribute(stop.from, Layout(mesh, everywhere, stop.to.shape()))
      .summary()
      .most_bound_bytes;
}

std::string pictures(const Stop& stop, const Style& style) {
  auto options = style.picture(style.width / 2);
  options.caption = false;
  const auto captioned = [&](const Layout& drawn) {
    return concat(style.bold(to_string(drawn.placements())), " on ", drawn.mesh(), '\n',
                  draw(drawn, options));
  };
  const char* arrow = style.ascii ? "  -->  " : "  ──▶  ";
  std::string text = beside(captioned(stop.from), arrow, captioned(stop.to));
  if (stop.with_mesh) {
    text = beside(concat(style.bold("the mesh"), '\n', draw_mesh(stop.from.mesh(), options)),
                  "    ", text);
  }
  return text;
}

/// What the busiest rank receives, and, where that is more, with a full copy on every rank first.
std::string chart(const Stop& stop, const PlanSummary& summary, const Style& style) {
  const std::int64_t full = bound_of_full_copy(stop);
  std::string received =
      concat(format_bytes(summary.most_received_bytes),
             summary.most_received_bytes <= summary.most_bound_bytes
                 ? std::string(": the least possible")
                 : concat("; the bound is ", format_bytes(summary.most_bound_bytes)));
  if (full <= summary.most_received_bytes) return concat("receives          ", received, '\n');
  constexpr std::int64_t kLongest = 42;
  const double share = static_cast<double>(summary.most_received_bytes) / static_cast<double>(full);
  const auto length = std::max<std::int64_t>(std::llround(share * kLongest), 1);
  return concat("receives          ", style.green(style.bar(length)), ' ', received,
                "\nwith a full copy  ", style.dim(style.bar(kLongest)), ' ', format_bytes(full),
                '\n');
}

std::string show(const Stop& stop, std::size_t number, const Style& style) {
  const auto plan = plan_redistribute(stop.from, stop.to, stop.options);
  const PlanSummary summary = plan.summary();
  std::string text = style.heading(concat(number, ". ", stop.title));
  for (const char* line : stop.why) text += concat(line, '\n');
  text += '\n';
  if (stop.with_pictures) text += pictures(stop, style) + '\n';
  for (const auto& step : plan.steps()) text += concat("step              ", step, '\n');
  text += chart(stop, summary, style);
  const auto unlimited = plan_redistribute(stop.from, stop.to);
  if (plan.options() != unlimited.options()) {
    text +=
        concat("peak memory       ", format_bytes(summary.most_peak_bytes), ": input, output and ",
               format_bytes(summary.most_staging_bytes), " of buffers; without the limit ",
               format_bytes(unlimited.summary().most_peak_bytes), '\n');
  }
  return text + '\n';
}

}  // namespace

std::string tour(const Style& style) {
  std::string text =
      style.bold("Tessera: who owns what of a distributed tensor, and how to get it elsewhere.\n");
  text += R"(
A box is a tensor: its cells name the ranks that own them, the numbers at its lines are indices.
S(0) cuts tensor dim 0 over the ranks of a mesh dim, R keeps it whole on all of them, and P(sum)
holds contributions to a sum. Every plan shows its steps and what the busiest rank receives, against
what it would receive if every rank first got a full copy.

)";
  const auto all = stops();
  for (std::size_t i = 0; i < all.size(); ++i) text += show(all[i], i + 1, style);
  return text + "Ask for your own: tessera_plan --help\n";
}

}  // namespace tessera::tools
