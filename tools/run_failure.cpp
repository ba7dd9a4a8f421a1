#include "run_failure.h"

#include <charconv>
#include <fstream>
#include <string_view>
#include <system_error>

namespace tessera::tools {

std::optional<FailureReport> read_failure_report(const std::string& path) {
  std::ifstream file(path);
  std::string text(256, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));

  // The head that src/tessera/comm/failure_report.cpp writes; what follows is for torchrun.
  constexpr std::string_view kTime = R"({"tessera":{"time_ns":)";
  constexpr std::string_view kConsequence = R"(,"consequence":)";
  if (!text.starts_with(kTime)) return std::nullopt;
  FailureReport report;
  const auto [end, error] =
      std::from_chars(text.data() + kTime.size(), text.data() + text.size(), report.nanoseconds);
  const std::string_view rest(end, static_cast<std::size_t>(text.data() + text.size() - end));
  if (error != std::errc() || !rest.starts_with(kConsequence)) return std::nullopt;
  report.is_consequence = rest.substr(kConsequence.size()).starts_with("true");
  return report;
}

}  // namespace tessera::tools
