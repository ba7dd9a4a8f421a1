#include "demo_arguments.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include <tessera/base/check.h>

#include "styles.h"

namespace gpt {

using tessera::MeshShape;

namespace {

constexpr std::int64_t kDefaultRanks = 4;
constexpr std::int64_t kMostSteps = 100'000;

/// Whether a launcher of processes says how many ranks there are.
bool is_launched() {
  const char* const variables[] = {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID",
                                   "TESSERA_RANKS"};
  return std::any_of(std::begin(variables), std::end(variables), [](const char* name) {
    const char* value = std::getenv(name);
    return value != nullptr && *value != '\0';
  });
}

/// Hands out the words of a command line: `--name value` and `--name=value` alike.
class Words {
 public:
  Words(int argc, char** argv) : words_(argv + std::min(argc, 1), argv + argc) {}

  /// The next option; false at the end.
  bool next() {
    if (at_ >= words_.size()) return false;
    const std::string& word = words_[at_++];
    const auto equals = word.starts_with("--") ? word.find('=') : std::string::npos;
    has_value_ = equals != std::string::npos;
    name = word.substr(0, equals);
    value_ = has_value_ ? word.substr(equals + 1) : "";
    return true;
  }

  std::string value(const char* wanted) {
    if (has_value_) return value_;
    TESSERA_CHECK(at_ < words_.size(), name, ": no value given; write ", name, ' ', wanted);
    return words_[at_++];
  }

  void no_value() const {
    TESSERA_CHECK(!has_value_, name, " takes no value, '", value_, "' given");
  }

  std::string name;

 private:
  std::vector<std::string> words_;
  std::size_t at_ = 0;
  bool has_value_ = false;
  std::string value_;
};

std::int64_t parse_number(const std::string& name, const std::string& text, std::int64_t most) {
  std::int64_t number = 0;
  const auto* end = text.data() + text.size();
  const auto [read, error] = std::from_chars(text.data(), end, number);
  TESSERA_CHECK(error == std::errc() && read == end && number >= 1 && number <= most, name, ": '",
                text, "' given; allowed are whole numbers from 1 to ", most);
  return number;
}

MeshShape parse_mesh(const std::string& text) {
  MeshShape mesh = MeshShape::parse(text);
  (void)default_style(mesh);  // Throws for dims that no style has.
  return mesh;
}

void check_style(const MeshShape& mesh, const std::string& style) {
  const auto needed = mesh_dims_of(parse_style(style));
  TESSERA_CHECK(mesh.names() == needed, "--style ", style, " needs a mesh with ",
                needed.size() == 1 ? "only the dim " : "the dims ",
                tessera::joined(needed, " and "), "; the mesh is ", mesh, ", for which ",
                default_style(mesh), " would do");
}

}  // namespace

std::string demo_usage() {
  return R"(Usage: tessera_demo [OPTIONS]

Trains a small GPT on a mesh of ranks, and the same on one rank: the losses must be equal.

  --ranks N      how many ranks, as threads of this process (default: the mesh's, or 4)
  --mesh MESH    what they form: dp=4, tp=2 or dp=2,tp=2 (default: dp=N/2,tp=2, or dp=N)
  --style STYLE  what is spread how (default: fsdp, sp or fsdp+sp, as the mesh has it)
                   dp    batches over dp, all parameters on every rank
                   fsdp  batches over dp, parameters too: gathered where they are used
                   tp    layers over tp
                   sp    layers over tp, and the sequence between them
                   dp+tp, dp+sp, fsdp+tp, fsdp+sp on meshes of two dims
  --steps N      how many steps to train (default: 20)
  --double       compute in float64
  --engine NAME  threads, gloo or mpi (default: as the program was started)
  --timeout S    how long a rank waits for the others
  --ascii        draw with +-| only
  --help         show this

Under torchrun, mpirun or srun a process is a rank: mpirun -n 4 tessera_demo --mesh dp=2,tp=2
)";
}

DemoArguments parse_demo_arguments(int argc, char** argv) {
  DemoArguments arguments;
  std::optional<std::int64_t> ranks;
  Words words(argc, argv);
  while (words.next()) {
    const std::string name = words.name;
    if (name == "--help" || name == "-h") {
      words.no_value();
      arguments.help = true;
    } else if (name == "--ascii" || name == "--double") {
      words.no_value();
      (name == "--ascii" ? arguments.ascii : arguments.is_double) = true;
    } else if (name == "--mesh") {
      arguments.mesh = parse_mesh(words.value("dp=2,tp=2"));
    } else if (name == "--style") {
      arguments.style = words.value("fsdp");
      (void)parse_style(*arguments.style);
    } else if (name == "--steps") {
      arguments.steps = parse_number(name, words.value("20"), kMostSteps);
    } else if (name == "--ranks" || name == "--engine" || name == "--timeout") {
      const std::string value = words.value(name == "--ranks" ? "4" : "VALUE");
      if (name == "--ranks") ranks = parse_number(name, value, 1024);
      arguments.launch.insert(arguments.launch.end(), {name, value});
    } else {
      TESSERA_CHECK(false, "unknown option '", name, "'; --help lists them");
    }
  }
  TESSERA_CHECK(!ranks || !arguments.mesh || arguments.mesh->num_ranks() == *ranks, "--mesh ",
                *arguments.mesh, " has ", arguments.mesh->num_ranks(), " ranks, but --ranks ",
                *ranks, " given; leave one of them out");
  if (!ranks && (arguments.mesh || !is_launched())) {
    ranks = arguments.mesh ? arguments.mesh->num_ranks() : kDefaultRanks;
    arguments.launch.insert(arguments.launch.end(), {"--ranks", std::to_string(*ranks)});
  }
  if (arguments.style && !arguments.mesh && ranks) {
    arguments.mesh = default_mesh(*ranks, arguments.style);
  }
  if (arguments.style && arguments.mesh) check_style(*arguments.mesh, *arguments.style);
  return arguments;
}

MeshShape default_mesh(std::int64_t ranks, const std::optional<std::string>& style) {
  const auto dims = style ? mesh_dims_of(parse_style(*style)) : std::vector<std::string>();
  if (dims.size() == 1) return MeshShape({ranks}, dims);
  if (ranks % 2 != 0) return MeshShape({ranks}, {"dp"});
  return MeshShape({ranks / 2, 2}, {"dp", "tp"});
}

std::string default_style(const MeshShape& mesh) {
  for (const auto* style : {"fsdp", "sp", "fsdp+sp"}) {
    if (mesh.names() == mesh_dims_of(parse_style(style))) return style;
  }
  TESSERA_CHECK(false, "--mesh ", mesh, ": its dims must be called dp, tp, or dp and tp, as in ",
                "dp=2,tp=2");
  return {};
}

}  // namespace gpt
