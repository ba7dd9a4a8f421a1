#include "demo_report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string_view>
#include <thread>

#include <tessera/base/concat.h>
#include <tessera/base/units.h>

namespace gpt {

using namespace tessera;
using Look = tools::Style;

namespace {

std::string formatted(const char* format, double number) {
  char text[64];
  (void)std::snprintf(text, sizeof(text), format, number);
  return text;
}

std::string padded(std::string text, std::size_t width, bool left = false) {
  const std::size_t used = picture_width(text);
  const std::string blanks(used < width ? width - used : 0, ' ');
  return left ? text + blanks : blanks + text;
}

const char* explanation(const Style& style) {
  const bool shards = style.batches == Batches::fully_sharded;
  const bool copies = style.batches == Batches::data_parallel;
  switch (style.layers) {
    case Layers::none:
      return shards
                 ? "Batches and parameters are cut over dp; a parameter is whole while it is used."
                 : "Batches are cut over dp; every rank holds all parameters.";
    case Layers::tensor_parallel:
      if (shards)
        return "Layers are cut over tp; batches, and what is left of parameters, over dp.";
      return copies ? "Layers are cut over tp, batches over dp." : "Layers are cut over tp.";
    case Layers::sequence_parallel:
      if (shards) {
        return "Layers, and the sequence between them, are cut over tp; batches and parameters "
               "over "
               "dp.";
      }
      return copies ? "Layers, and the sequence between them, are cut over tp; batches over dp."
                    : "Layers, and the sequence between them, are cut over tp.";
  }
  return "";
}

std::string ranks_are(const World& world) {
  const std::string engine = world.engine();
  if (engine == "threads") return "threads of one process";
  return concat("processes over ", engine);
}

/// Why more ranks can be slower: `, which share 2 cores`.
std::string shared_cores(const DeviceMesh& mesh) {
  const auto cores = static_cast<std::int64_t>(std::thread::hardware_concurrency());
  if (std::string_view(mesh.world().engine()) != "threads" || cores == 0 || mesh.size() <= cores)
    return "";
  return cores == 1 ? ", which share one core" : concat(", which share ", cores, " cores");
}

std::string counted_ranks(const DeviceMesh& mesh) {
  return mesh.size() == 1 ? "one rank" : concat(mesh.size(), " ranks");
}

std::int64_t local_numel(const at::Tensor& tensor) { return to_local(tensor.detach()).numel(); }

/// `blocks.0.mlp.up.weight [512,128][S(1),S(0)]` above its picture.
std::string picture_of(const std::string& name, const at::Tensor& tensor, const Look& look) {
  auto options = look.picture(look.width / 2);
  options.caption = false;
  const auto& layout = layout_of(tensor);
  return concat(look.bold(name), '\n', '[', joined(layout.shape(), ","), ']',
                layout.placements_text(), '\n', draw(layout, options));
}

/// Pictures next to each other as far as there is room.
std::string arranged(const std::vector<std::string>& pictures, const Look& look) {
  std::string text;
  std::string row;
  for (const auto& picture : pictures) {
    const std::string wider = row.empty() ? picture : beside(row, "    ", picture);
    if (!row.empty() && std::cmp_greater(picture_width(wider), look.width)) {
      text += row + '\n';
      row = picture;
    } else {
      row = wider;
    }
  }
  return text + row;
}

/// Why something was moved, in the reader's words rather than the library's.
std::string reason(const CommRecord& record) {
  const std::string& cause = record.cause;
  if (cause.starts_with("gather a parameter")) return "parameters, whole for one operation";
  if (cause == "gradients") return "gradients, to their parameters' layouts";
  if (cause.starts_with("redistribute ")) {
    return concat("activations, ", cause.substr(std::string_view("redistribute ").size()));
  }
  if (cause == "backward of redistribute") return "gradients of activations";
  if (cause.starts_with("implicit, for ")) {
    return concat("what ", cause.substr(std::string_view("implicit, for ").size()), " needs");
  }
  if (cause.empty()) return "asked for by the program";
  return cause;
}

/// Records of one reason and one kind of collective.
struct TrafficLine {
  std::string reason;
  std::string collective;
  std::int64_t count = 0;
  std::int64_t bytes = 0;
};

std::vector<TrafficLine> traffic_lines(const std::vector<CommRecord>& records) {
  std::vector<TrafficLine> lines;
  for (const auto& record : records) {
    const std::string why = reason(record);
    auto line = std::find_if(lines.begin(), lines.end(), [&](const TrafficLine& other) {
      return other.reason == why && other.collective == record.name;
    });
    if (line == lines.end()) {
      line = lines.insert(lines.end(), {.reason = why, .collective = record.name});
    }
    ++line->count;
    line->bytes += record.received_bytes;
  }
  std::stable_sort(lines.begin(), lines.end(),
                   [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  return lines;
}

}  // namespace

double greatest_difference(const DemoRun& run) {
  double greatest = 0;
  for (std::size_t i = 0; i < run.losses.size(); ++i) {
    greatest = std::max(greatest, std::abs(run.losses[i] - run.single_losses[i]));
  }
  return greatest;
}

std::string opening(const Training& training, const DeviceMesh& mesh, const Style& style,
                    const TrainingOptions& options, const Look& look) {
  std::int64_t all = 0;
  std::int64_t own = 0;
  for (const auto& parameter : training.model()->parameters()) {
    all += parameter.numel();
    own += local_numel(parameter);
  }
  const auto percent = 100 * own / std::max<std::int64_t>(all, 1);
  std::string text =
      look.heading(concat("A GPT on ", counted_ranks(mesh), ", style ", to_string(style)));
  text += concat(explanation(style), "\nRanks are ", ranks_are(mesh.world()), "; a rank holds ",
                 percent, " % of ", all / 1000, " thousand parameters. Batches of ", options.rows,
                 " x ", options.length, " characters.\n\n");
  auto small = look.picture(look.width / 2);
  small.caption = false;
  std::vector<std::string> pictures = {
      concat(look.bold("the mesh"), '\n', mesh.shape(), '\n', draw_mesh(mesh.shape(), small))};
  const auto parameters = training.model()->named_parameters();
  for (const auto* name : {"blocks.0.mlp.up.weight", "blocks.0.mlp.down.weight"}) {
    pictures.push_back(picture_of(name, parameters[name], look));
  }
  const auto batch = spread({torch::zeros({options.rows, options.length}, torch::kLong),
                             torch::zeros({options.rows, options.length}, torch::kLong)},
                            mesh);
  pictures.push_back(picture_of("tokens", batch.tokens, look));
  return text + arranged(pictures, look) + '\n';
}

std::string progress(std::int64_t done, std::int64_t steps, const std::string& text,
                     const Look& look) {
  constexpr std::int64_t kWidth = 40;
  const std::int64_t length = kWidth * done / std::max<std::int64_t>(steps, 1);
  return concat("\r\x1b[K", look.green(look.bar(length)), look.dim(look.bar(kWidth - length)), ' ',
                done, '/', steps, "  ", text);
}

std::string loss_table(const DemoRun& run, const Look& look) {
  std::string text = concat(look.bold("  step        loss  on one rank   difference"), '\n');
  const auto steps = static_cast<std::int64_t>(run.losses.size());
  const std::int64_t stride = std::max<std::int64_t>((steps + 4) / 5, 1);
  for (std::int64_t step = 0; step < steps; ++step) {
    if (step % stride != 0 && step != steps - 1) continue;
    const auto at = static_cast<std::size_t>(step);
    const double difference = std::abs(run.losses[at] - run.single_losses[at]);
    text +=
        concat(padded(std::to_string(step + 1), 6), padded(formatted("%.6f", run.losses[at]), 12),
               padded(formatted("%.6f", run.single_losses[at]), 13),
               padded(difference == 0 ? "0" : formatted("%.1e", difference), 13), '\n');
  }
  return text;
}

std::string traffic_table(const DemoRun& run, const Look& look) {
  const auto lines = traffic_lines(run.traffic);
  std::int64_t total = 0;
  std::int64_t count = 0;
  for (const auto& line : lines) {
    total += line.bytes;
    count += line.count;
  }
  std::string text = look.heading(concat("What a rank receives in one step: ", format_bytes(total),
                                         " in ", count, " collectives"));
  constexpr std::size_t kMostLines = 8;
  constexpr std::int64_t kLongest = 12;
  std::int64_t rest = 0;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i >= kMostLines) {
      rest += lines[i].bytes;
      continue;
    }
    const auto length =
        total == 0 ? 0
                   : static_cast<std::int64_t>(std::round(static_cast<double>(kLongest) *
                                                          static_cast<double>(lines[i].bytes) /
                                                          static_cast<double>(total)));
    text += concat(padded(format_bytes(lines[i].bytes), 9), ' ',
                   padded(look.green(look.bar(length)), kLongest, true), "  ",
                   padded(lines[i].reason, 42, true),
                   look.dim(concat(lines[i].collective, " x ", lines[i].count)), '\n');
  }
  if (lines.size() > kMostLines) {
    text +=
        concat(padded(format_bytes(rest), 9), "  in ", lines.size() - kMostLines, " more kinds\n");
  }
  return text;
}

std::string closing(const DemoRun& run, const DeviceMesh& mesh, const Look& look) {
  const double greatest = greatest_difference(run);
  const bool is_equal = greatest <= run.tolerance;
  const std::string verdict = concat(is_equal ? "The losses are equal" : "THE LOSSES DIFFER",
                                     ": at most ", formatted("%.1e", greatest), " apart, ",
                                     formatted("%.0e", run.tolerance), " is allowed.");
  return concat('\n', is_equal ? look.green(verdict) : look.bold(verdict), "\nA step takes ",
                formatted("%.1f", run.step_ms), " ms on ", counted_ranks(mesh), shared_cores(mesh),
                "; ", formatted("%.1f", run.single_step_ms), " ms on one.\n");
}

}  // namespace gpt
