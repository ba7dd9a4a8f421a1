// Prints who owns what of a distributed tensor, and how it gets from one layout to another.

#include <algorithm>
#include <exception>
#include <iostream>
#include <span>
#include <string>
#include <utility>

#include "plan_arguments.h"
#include "terminal.h"
#include "tessera/base/concat.h"
#include "tessera/base/error.h"
#include "tessera/base/units.h"
#include "tessera/layout/picture.h"
#include "tessera/plan/redistribute_plan.h"
#include "tour.h"

namespace tessera::tools {
namespace {

/// The two layouts side by side, or one below the other where the output is too narrow.
std::string before_and_after(const Layout& from, const Layout& to, const Style& style) {
  const auto captioned = [&](const char* name, const Layout& layout, std::int64_t width) {
    return concat(style.bold(name), ' ', draw(layout, style.picture(width)));
  };
  const std::string arrow = style.ascii ? "  -->  " : "  ──▶  ";
  const std::int64_t half = (style.width - 7) / 2;
  std::string both = beside(captioned("before", from, half), arrow, captioned("after", to, half));
  if (std::cmp_less_equal(picture_width(both), style.width)) return both;
  return captioned("before", from, style.width) + '\n' + captioned("after", to, style.width);
}

std::string box_text(std::span<const Extent> box) {
  return box.empty() ? "scalar" : joined(box, " x ");
}

/// `  send to 3: 4.2 MB, [0, 2048) x [0, 512)`, with the boxes of the rank's local tensor.
std::string message_line(const RankStep& step, const Message& message, const std::string& what,
                         std::int64_t element_size) {
  std::string line = concat("  ", what, ": ", format_bytes(message.numel * element_size), ", ");
  constexpr std::size_t kMostShown = 3;
  for (std::size_t i = 0; i < std::min(message.box_count, kMostShown); ++i) {
    line += concat(i == 0 ? "" : " + ", box_text(step.box(message, i)));
  }
  if (message.box_count > kMostShown) {
    line += concat(" + ", message.box_count - kMostShown, " more boxes");
  }
  return line + (message.accumulate ? ", reduced into what is there\n" : "\n");
}

/// What one rank sends and receives in every step.
std::string rank_text(const RedistributePlan& plan, std::int64_t rank, const Style& style) {
  const auto own = plan.for_rank(rank);
  const std::int64_t element_size = plan.options().element_size;
  std::string text = style.heading(concat("rank ", rank, ", in indices of its local tensor"));
  for (std::size_t i = 0; i < plan.steps().size(); ++i) {
    const RankStep step = rank_step(plan.steps()[i], rank);
    text += concat("step ", i + 1, ": ", plan.steps()[i], '\n', "  local shape [",
                   joined(step.in_shape, ","), "] -> [", joined(step.out_shape, ","), "]\n");
    for (const auto& message : step.sends) {
      if (message.peer == rank) continue;  // Shown where it arrives.
      text += message_line(step, message, concat("send to ", message.peer), element_size);
    }
    for (const auto& message : step.receives) {
      const std::string what =
          message.peer == rank ? "keep" : concat("receive from ", message.peer);
      text += message_line(step, message, what, element_size);
    }
  }
  return text + concat("receives ", format_bytes(own->traffic.received_bytes), " (bound ",
                       format_bytes(own->bound_bytes), "), sends ",
                       format_bytes(own->traffic.sent_bytes), ", peak memory ",
                       format_bytes(own->peak_bytes), '\n');
}

std::string plan_text(const PlanArguments& arguments, const Style& style) {
  const Layout& from = *arguments.from;
  const Layout& to = *arguments.to;
  const auto plan = plan_redistribute(from, to, arguments.options);
  if (arguments.json) return plan.explain_json() + '\n';
  std::string text =
      concat(style.bold("mesh"), ' ', draw_mesh(from.mesh(), style.picture(style.width)));
  if (!to.mesh().same_ranks(from.mesh())) {
    text += concat(style.bold("to mesh"), ' ', draw_mesh(to.mesh(), style.picture(style.width)));
  }
  text +=
      concat('\n', before_and_after(from, to, style), '\n', style.heading("plan"), plan.explain());
  if (arguments.rank) text += '\n' + rank_text(plan, *arguments.rank, style);
  return text;
}

std::string answer(const PlanArguments& arguments) {
  const Style style = standard_output_style(arguments.color, arguments.ascii);
  switch (arguments.action) {
    case PlanArguments::Action::help:
      return plan_usage();
    case PlanArguments::Action::tour:
      return tour(style);
    case PlanArguments::Action::draw:
      return concat(style.bold("mesh"), ' ',
                    draw_mesh(arguments.from->mesh(), style.picture(style.width)), '\n',
                    style.bold("layout"), ' ', draw(*arguments.from, style.picture(style.width)));
    case PlanArguments::Action::plan:
      return plan_text(arguments, style);
  }
  return "";
}

}  // namespace
}  // namespace tessera::tools

int main(int argc, char** argv) {
  try {
    std::cout << tessera::tools::answer(tessera::tools::parse_plan_arguments(argc, argv))
              << std::flush;
    return std::cout.good() ? 0 : 1;
  } catch (const tessera::InvalidArgument& error) {
    std::cerr << "tessera_plan: " << error.what() << '\n';
    return 2;
  } catch (const std::exception& error) {
    std::cerr << "tessera_plan: " << error.what() << '\n';
    return 1;
  }
}
