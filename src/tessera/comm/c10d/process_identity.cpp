#include "tessera/comm/c10d/process_identity.h"

#include <array>
#include <charconv>
#include <fstream>
#include <functional>
#include <optional>
#include <sstream>

#include <unistd.h>

#include "tessera/base/check.h"
#include "tessera/base/hash.h"

namespace tessera::detail {
namespace {

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::uint64_t this_machine() {
  std::array<char, 64> name_space{};
  // Without /proc both parts are empty; then only processes with the same host name are compared.
  const ssize_t length = readlink("/proc/self/ns/pid", name_space.data(), name_space.size());
  const std::string boot = first_line("/proc/sys/kernel/random/boot_id");
  const std::hash<std::string_view> hash;
  const std::string_view space(name_space.data(),
                               length > 0 ? static_cast<std::size_t>(length) : 0);
  return hash_combine(hash(boot), hash(space));
}

struct ProcessStat {
  char state = '?';
  std::uint64_t start = 0;
};

/// Reads /proc/<pid>/stat; nothing when there is no such process.
std::optional<ProcessStat> stat_of(std::int64_t pid) {
  const std::string line = first_line(concat("/proc/", pid, "/stat").c_str());
  // The second field is the program's name in parentheses, which may contain anything.
  const auto name_end = line.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(line.substr(name_end + 1));
  ProcessStat result;
  fields >> result.state;
  std::string skipped;
  constexpr int kFieldsBetween = 18;
  for (int i = 0; i < kFieldsBetween; ++i) fields >> skipped;
  fields >> result.start;
  return result;
}

}  // namespace

std::string ProcessIdentity::to_string() const { return concat("process ", pid, " on ", host); }

ProcessIdentity this_process() {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  ProcessIdentity result{host.data(), this_machine(), getpid(), 0};
  if (const auto stat = stat_of(result.pid)) result.start = stat->start;
  return result;
}

Liveness liveness_of(const ProcessIdentity& process) {
  static const std::uint64_t machine = this_machine();
  if (process.machine != machine || process.start == 0) return Liveness::unknown;
  const auto stat = stat_of(process.pid);
  if (!stat || stat->start != process.start) return Liveness::ended;
  switch (stat->state) {
    case 'Z':
    case 'X':
    case 'x':
      return Liveness::ended;
    case 'T':
    case 't':
      return Liveness::stopped;
    default:
      return Liveness::running;
  }
}

std::string encode(const ProcessIdentity& process) {
  return concat(process.machine, ' ', process.pid, ' ', process.start, ' ', process.host);
}

ProcessIdentity decode_process(std::string_view line) {
  std::istringstream fields{std::string(line)};
  ProcessIdentity result;
  fields >> result.machine >> result.pid >> result.start;
  TESSERA_INTERNAL_CHECK(!fields.fail(), "process record '", line, "' cannot be read");
  fields >> result.host;
  return result;
}

}  // namespace tessera::detail
