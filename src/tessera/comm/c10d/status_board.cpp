#include "tessera/comm/c10d/status_board.h"

#include <array>
#include <charconv>

#include "tessera/base/check.h"
#include "tessera/base/concat.h"

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
  std::string field(rest.substr(0, end));
  rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
  return field;
}

std::vector<std::int64_t> parse_numbers(const std::string& text) {
  std::vector<std::int64_t> numbers;
  const char* const end = text.data() + text.size();
  for (const char* next = text.data(); next < end; ++next) {
    std::int64_t number = 0;
    const auto read = std::from_chars(next, end, number);
    TESSERA_INTERNAL_CHECK(read.ec == std::errc(), "'", text, "' is no list of numbers");
    numbers.push_back(number);
    next = read.ptr;
  }
  return numbers;
}

std::int64_t take_number(std::string_view& rest) {
  const auto numbers = parse_numbers(take_field(rest));
  TESSERA_INTERNAL_CHECK(numbers.size() == 1, "a status without a number cannot be read");
  return numbers.front();
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
  append_field(text, std::to_string(status.wait));
  append_field(text, joined(status.awaited.ranks, ","));
  append_field(text, status.awaited.key);
  append_field(text, std::to_string(status.awaited.number));
  append_field(text, status.deadlock);
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
  status.wait = take_number(rest);
  status.awaited.ranks = parse_numbers(take_field(rest));
  status.awaited.key = take_field(rest);
  status.awaited.number = take_number(rest);
  status.deadlock = take_field(rest);
  return status;
}

}  // namespace tessera::detail
