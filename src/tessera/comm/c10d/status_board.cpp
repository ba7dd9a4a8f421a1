#include "tessera/comm/c10d/status_board.h"

#include <array>

#include "tessera/base/check.h"

namespace tessera::detail {
namespace {

// Between the fields; the texts come from messages and names, and must not contain it.
constexpr char kSeparator = '\x1f';

void append_field(std::string& text, std::string_view field) {
  text += kSeparator;
  for (const char c : field) text += c == kSeparator ? ' ' : c;
}

std::string take_field(std::string_view& rest) {
  const auto end = rest.find(kSeparator);
  const std::string field(rest.substr(0, end));
  rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
  return field;
}

}  // namespace

std::string encode(const RankStatus& status) {
  constexpr std::array kLetters = {'w', 'f', 'l'};
  std::string text(1, kLetters.at(static_cast<std::size_t>(status.kind)));
  append_field(text, status.group);
  append_field(text, status.call);
  append_field(text, status.reason);
  append_field(text, status.failed_groups);
  append_field(text, status.calls);
  return text;
}

RankStatus decode_status(std::string_view text) {
  std::string_view rest = text;
  const std::string letter = take_field(rest);
  TESSERA_INTERNAL_CHECK(letter == "w" || letter == "f" || letter == "l", "status '", text,
                         "' cannot be read");
  RankStatus status;
  status.kind = letter == "w"   ? RankStatus::Kind::waiting
                : letter == "f" ? RankStatus::Kind::failed
                                : RankStatus::Kind::left;
  status.group = take_field(rest);
  status.call = take_field(rest);
  status.reason = take_field(rest);
  status.failed_groups = take_field(rest);
  status.calls = take_field(rest);
  return status;
}

}  // namespace tessera::detail
