#include "plan_arguments.h"

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/base/check.h"

namespace tessera::tools {
namespace {

/// The options that stand alone, and those that a value follows.
constexpr std::string_view kFlags[] = {"--help", "--tour", "--json", "--ascii"};
constexpr std::string_view kValued[] = {"--mesh",   "--ranks",   "--shape",    "--from",
                                        "--to",     "--to-mesh", "--to-ranks", "--element-size",
                                        "--budget", "--rank",    "--color"};

template <typename Names>
bool contains(const Names& names, std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

/// The options as given, each at most once; flags have an empty value.
class GivenOptions {
 public:
  GivenOptions(int argc, const char* const* argv) {
    for (int i = 1; i < argc; ++i) {
      std::string_view name = argv[i];
      if (name == "-h") name = "--help";
      const std::size_t equals = std::min(name.find('='), name.size());
      const bool attached = equals < name.size();
      std::string value(attached ? name.substr(equals + 1) : "");
      name = name.substr(0, equals);
      if (contains(kValued, name)) {
        TESSERA_CHECK(attached || i + 1 < argc, name, " is given without a value; see --help");
        if (!attached) value = argv[++i];
      } else {
        TESSERA_CHECK(contains(kFlags, name), "unknown argument '", argv[i], "'; see --help");
        TESSERA_CHECK(!attached, name, " takes no value");
      }
      const bool added = values_.emplace(name, std::move(value)).second;
      TESSERA_CHECK(added, name, " is given twice");
    }
  }

  [[nodiscard]] bool empty() const { return values_.empty(); }
  [[nodiscard]] bool has(std::string_view name) const { return values_.contains(name); }
  /// The value of an option, or `otherwise`.
  [[nodiscard]] std::string get(std::string_view name, std::string_view otherwise) const {
    const auto found = values_.find(name);
    return found == values_.end() ? std::string(otherwise) : found->second;
  }
  [[nodiscard]] std::string required(std::string_view name) const {
    TESSERA_CHECK(has(name), name, " is missing; see --help");
    return get(name, "");
  }

 private:
  std::map<std::string, std::string, std::less<>> values_;
};

/// Returns what `read` makes of an option's value; its complaint then names the option.
template <typename Read>
auto reading(std::string_view name, const std::string& value, const Read& read) {
  try {
    return read(value);
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(concat(name, ": ", error.what()));
  }
}

std::int64_t integer(std::string_view text) {
  std::int64_t value = 0;
  const char* last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, value);
  TESSERA_CHECK(error == std::errc() && end == last, "'", text, "' given; an integer is expected");
  return value;
}

/// `8192,8192`; nothing is the empty list.
std::vector<std::int64_t> integers(std::string_view text) {
  std::vector<std::int64_t> values;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    values.push_back(integer(text.substr(0, comma)));
    TESSERA_CHECK(comma + 1 != text.size(), "'", text, "' given; an integer is missing at its end");
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return values;
}

/// `4096`, `64k`, `16M` or `2G`; the letters stand for powers of 1000.
std::int64_t byte_count(std::string_view text) {
  constexpr std::string_view kSuffixes = "kMG";
  const std::size_t suffix = text.empty() ? std::string_view::npos : kSuffixes.find(text.back());
  std::int64_t unit = 1;
  if (suffix != std::string_view::npos) {
    text.remove_suffix(1);
    for (std::size_t i = 0; i <= suffix; ++i) unit *= 1000;
  }
  const std::int64_t count = integer(text);
  TESSERA_CHECK(count >= 0 && count <= std::numeric_limits<std::int64_t>::max() / unit, "'", text,
                "' given; a number of bytes from 0 to 2^63 - 1 is expected");
  return count * unit;
}

ColorMode color_mode(std::string_view text) {
  if (text == "auto") return ColorMode::automatic;
  if (text == "always") return ColorMode::always;
  TESSERA_CHECK(text == "never", "'", text, "' given; auto, always or never is expected");
  return ColorMode::never;
}

/// The mesh that two options describe together; without ranks they are 0, 1, 2, ...
MeshShape mesh_of(const GivenOptions& given, std::string_view mesh_name,
                  std::string_view ranks_name) {
  const MeshShape shape = reading(mesh_name, given.required(mesh_name), MeshShape::parse);
  return reading(ranks_name, given.get(ranks_name, ""), [&](const std::string& ranks) {
    return MeshShape(shape.sizes(), shape.names(), integers(ranks));
  });
}

Layout layout_of(const GivenOptions& given, std::string_view name, const MeshShape& mesh,
                 const Shape& shape) {
  return reading(name, given.required(name), [&](const std::string& placements) {
    return Layout(mesh, parse_placements(placements), shape);
  });
}

void check_absent(const GivenOptions& given, std::initializer_list<std::string_view> names,
                  const char* why) {
  for (const auto name : names) TESSERA_CHECK(!given.has(name), name, why);
}

void read_layouts(const GivenOptions& given, PlanArguments& arguments) {
  const MeshShape mesh = mesh_of(given, "--mesh", "--ranks");
  const Shape shape = reading("--shape", given.required("--shape"), integers);
  arguments.from = layout_of(given, "--from", mesh, shape);
  if (!given.has("--to")) {
    check_absent(given,
                 {"--to-mesh", "--to-ranks", "--element-size", "--budget", "--rank", "--json"},
                 " is about a plan; pass --to as well");
    arguments.action = PlanArguments::Action::draw;
    return;
  }
  arguments.action = PlanArguments::Action::plan;
  const bool other_mesh = given.has("--to-mesh") || given.has("--to-ranks");
  const std::string_view to_mesh = given.has("--to-mesh") ? "--to-mesh" : "--mesh";
  arguments.to =
      layout_of(given, "--to", other_mesh ? mesh_of(given, to_mesh, "--to-ranks") : mesh, shape);
}

void read_plan_options(const GivenOptions& given, PlanArguments& arguments) {
  auto& options = arguments.options;
  options.element_size = reading("--element-size", given.get("--element-size", "4"), integer);
  if (given.has("--budget")) {
    options.staging_budget = reading("--budget", given.required("--budget"), byte_count);
  }
  arguments.json = given.has("--json");
  if (!given.has("--rank")) return;
  TESSERA_CHECK(!arguments.json, "--json prints the whole plan; leave out --rank");
  const std::int64_t rank = reading("--rank", given.required("--rank"), integer);
  TESSERA_CHECK(arguments.from->mesh().contains(rank) || arguments.to->mesh().contains(rank),
                "--rank: ", rank, " given; it is neither in ", arguments.from->mesh(), " nor in ",
                arguments.to->mesh());
  arguments.rank = rank;
}

}  // namespace

PlanArguments parse_plan_arguments(int argc, const char* const* argv) {
  const GivenOptions given(argc, argv);
  PlanArguments arguments;
  if (given.empty() || given.has("--help")) return arguments;

  arguments.ascii = given.has("--ascii");
  arguments.color = reading("--color", given.get("--color", "auto"), color_mode);
  if (given.has("--tour")) {
    check_absent(given,
                 {"--mesh", "--ranks", "--shape", "--from", "--to", "--to-mesh", "--to-ranks",
                  "--element-size", "--budget", "--rank", "--json"},
                 " cannot be combined with --tour, which shows plans of its own");
    arguments.action = PlanArguments::Action::tour;
    return arguments;
  }
  read_layouts(given, arguments);
  if (arguments.action == PlanArguments::Action::plan) read_plan_options(given, arguments);
  return arguments;
}

const char* plan_usage() {
  return R"(Shows who owns what of a distributed tensor, and how it gets from one layout to another.

Usage: tessera_plan --mesh MESH --shape SIZES --from PLACEMENTS [--to PLACEMENTS] [OPTIONS]
       tessera_plan --tour

  --mesh dp=2,tp=4      sizes of the mesh, with or without names
  --shape 8192,8192     sizes of the whole tensor; '' is a scalar
  --from 'S(0),S(1)'    one placement per mesh dim:
                          S(d)     tensor dim d is cut into chunks, one per rank
                          SS(d,n)  the same in each of n pieces of dim d
                          R        every rank holds all of it
                          P(op)    every rank holds a contribution; op is sum, avg, min, max,
                                   product, band, bor or bxor
  --to 'S(1),S(0)'      the layout to get to; without it, --from is only drawn

  --ranks 4,5,6,7       global ranks of --mesh, row by row (default: 0, 1, 2, ...)
  --to-mesh MESH        another mesh for --to
  --to-ranks RANKS      and its global ranks
  --element-size 4      bytes per element
  --budget 16M          most bytes of message buffers per rank; k, M, G are powers of 1000
  --rank R              show the messages of one rank
  --json                print the plan as JSON, without pictures

  --tour                walk through seven plans that show what Tessera does
  --color WHEN          auto (default; on terminals, unless NO_COLOR is set), always, never
  --ascii               draw without UTF-8
  --help                show this
)";
}

}  // namespace tessera::tools
