#include "run_arguments.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>
#include <string_view>
#include <system_error>

#include "tessera/base/check.h"

namespace tessera::tools {
namespace {

template <typename Number>
std::optional<Number> number(std::string_view text) {
  Number value{};
  const char* last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, value);
  if (error != std::errc() || end != last) return std::nullopt;
  return value;
}

std::int64_t integer(std::string_view name, std::string_view text, std::int64_t low,
                     std::int64_t high) {
  const auto value = number<std::int64_t>(text);
  TESSERA_CHECK(value && *value >= low && *value <= high, name, ": '", text,
                "' given; an integer from ", low, " to ", high, " is expected");
  return *value;
}

std::chrono::milliseconds seconds(std::string_view name, std::string_view text) {
  constexpr double kMostSeconds = 1e7;
  const auto value = number<double>(text);
  TESSERA_CHECK(value && *value > 0 && *value <= kMostSeconds, name, ": '", text,
                "' given; a number of seconds above 0 and up to 10000000 is expected");
  return std::chrono::milliseconds(static_cast<std::int64_t>(std::ceil(*value * 1e3)));
}

/// Applies an option that has a value; false when there is no such option.
bool apply_valued(RunArguments& arguments, std::string_view name, std::string_view value) {
  if (name == "--nproc-per-node") {
    arguments.processes = integer(name, value, 1, 4096);
  } else if (name == "--log-dir") {
    TESSERA_CHECK(!value.empty(), "--log-dir: '' given; a folder is expected");
    arguments.log_dir = value;
  } else if (name == "--timeout") {
    arguments.timeout = seconds(name, value);
  } else if (name == "--grace") {
    arguments.grace = seconds(name, value);
  } else if (name == "--master-port") {
    arguments.master_port = static_cast<std::uint16_t>(integer(name, value, 1, 65535));
  } else if (name == "--nnodes") {
    TESSERA_CHECK(value == "1", "--nnodes: '", value,
                  "' given; tessera_run starts ranks on this host only, so 1 is expected; use "
                  "torchrun, mpirun or srun for several hosts");
  } else {
    return false;
  }
  return true;
}

/// Applies an option that stands alone; false when there is no such option.
bool apply_flag(RunArguments& arguments, std::string_view name) {
  if (name == "--help" || name == "-h") {
    arguments.help = true;
    return true;
  }
  // What torchrun needs to be told and tessera_run always does.
  return name == "--standalone" || name == "--no-python";
}

constexpr std::string_view kValued[] = {"--nproc-per-node", "--log-dir",     "--timeout",
                                        "--grace",          "--master-port", "--nnodes"};

}  // namespace

RunArguments parse_run_arguments(int argc, const char* const* argv) {
  RunArguments arguments;
  std::set<std::string, std::less<>> seen;
  int i = 1;
  for (; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--") {
      ++i;
      break;
    }
    if (argument.empty() || argument.front() != '-') break;
    const std::size_t equals = std::min(argument.find('='), argument.size());
    std::string name(argument.substr(0, equals));
    std::replace(name.begin(), name.end(), '_', '-');  // torchrun takes both, too.
    TESSERA_CHECK(seen.insert(name).second, name, " is given twice");
    const bool is_attached = equals < argument.size();
    if (std::find(std::begin(kValued), std::end(kValued), name) != std::end(kValued)) {
      TESSERA_CHECK(is_attached || i + 1 < argc, name, " is given without a value; see --help");
      apply_valued(arguments, name, is_attached ? argument.substr(equals + 1) : argv[++i]);
    } else {
      TESSERA_CHECK(apply_flag(arguments, name), "unknown option '", argument, "'; see --help");
      TESSERA_CHECK(!is_attached, name, " takes no value");
    }
  }
  arguments.command.assign(argv + i, argv + argc);
  TESSERA_CHECK(
      arguments.help || !arguments.command.empty(),
      "no program given; see --help, for example: tessera_run --nproc-per-node 4 ./program");
  return arguments;
}

const char* run_usage() {
  return R"(Starts a program several times on this host, each time as one rank.

Usage: tessera_run [OPTIONS] [--] PROGRAM [ARGS]

  --nproc-per-node N   how many ranks (default: 1)
  --log-dir DIR        keep what each rank prints, in DIR/<rank>/stdout.log and stderr.log
  --timeout SECONDS    stop the ranks when they run longer
  --grace SECONDS      how long ranks get to end by themselves after another one failed, and again
                       after SIGTERM before SIGKILL (default: 2)
  --master-port PORT   where rank 0 may listen (default: a free port)
  --help               show this

Ranks find RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT and the other
variables of torchrun. Their output is printed with the rank in front of each line. When a rank
fails, the others are stopped, and the first one that failed is named.

Exit code: 0 when all ranks end with 0; that of the first rank that failed, or 128 + its signal;
124 after --timeout; 128 + the signal that tessera_run got; 126 or 127 when the program cannot be
run; 2 for wrong arguments.
)";
}

}  // namespace tessera::tools
