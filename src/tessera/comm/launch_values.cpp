#include "tessera/comm/launch_values.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <system_error>

#include "tessera/base/check.h"

namespace tessera::detail {
namespace {

/// Reads all of `text` as a number; nothing when there is anything else in it.
template <typename Number>
std::optional<Number> number(std::string_view text) {
  Number value{};
  const char* last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, value);
  if (error != std::errc() || end != last) return std::nullopt;
  return value;
}

}  // namespace

std::int64_t read_integer(std::string_view what, std::string_view text, std::int64_t low,
                          std::int64_t high) {
  const auto value = number<std::int64_t>(text);
  TESSERA_CHECK(value && *value >= low && *value <= high, "launch: ", what, text,
                " given; an integer from ", low, " to ", high, " is expected");
  return *value;
}

EngineKind read_engine(std::string_view what, std::string_view text) {
  for (const auto kind : {EngineKind::threads, EngineKind::gloo, EngineKind::mpi}) {
    if (text == engine_name(kind)) return kind;
  }
  throw InvalidArgument(concat("launch: ", what, text, " given; threads, gloo or mpi is expected"));
}

std::chrono::milliseconds read_timeout(std::string_view what, std::string_view text) {
  constexpr double kMostSeconds = 1e7;
  const auto seconds = number<double>(text);
  TESSERA_CHECK(seconds && *seconds > 0 && *seconds <= kMostSeconds, "launch: ", what, text,
                " given; a number of seconds above 0 and up to 10000000 is expected");
  return std::chrono::milliseconds(static_cast<std::int64_t>(std::ceil(*seconds * 1e3)));
}

bool read_switch(std::string_view what, std::string_view text) {
  TESSERA_CHECK(text == "0" || text == "1", "launch: ", what, text, " given; 0 or 1 is expected");
  return text == "1";
}

std::string read_first_host(std::string_view what, std::string_view list) {
  std::string host;
  std::string_view rest = list;
  bool is_well_formed = true;
  while (is_well_formed && !rest.empty() && rest.front() != ',') {
    if (rest.front() == '[') {
      const std::size_t end = rest.find(']');
      const std::string_view range = rest.substr(1, end == rest.npos ? 0 : end - 1);
      const std::string_view first = range.substr(0, range.find_first_of(",-"));
      is_well_formed =
          !first.empty() && first.find_first_not_of("0123456789") == std::string_view::npos;
      host += first;
      rest.remove_prefix(is_well_formed ? end + 1 : 0);
    } else {
      is_well_formed = rest.front() != ']' && rest.front() > ' ';
      host += rest.front();
      rest.remove_prefix(1);
    }
  }
  TESSERA_CHECK(is_well_formed && !host.empty(), "launch: ", what, list,
                " given; a list of hosts such as node[001-004,007] is expected");
  return host;
}

std::optional<std::string_view> find_variable(const Variables& variables, std::string_view name) {
  const auto found = variables.find(name);
  if (found == variables.end() || found->second.empty()) return std::nullopt;
  return found->second;
}

std::optional<std::int64_t> find_integer(const Variables& variables, std::string_view name,
                                         std::int64_t low, std::int64_t high) {
  const auto text = find_variable(variables, name);
  if (!text) return std::nullopt;
  return read_integer(concat(name, '='), *text, low, high);
}

}  // namespace tessera::detail
