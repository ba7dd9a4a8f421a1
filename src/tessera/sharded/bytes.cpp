#include "tessera/sharded/bytes.h"

#include "tessera/base/check.h"

namespace tessera::sharded::detail {
namespace {
constexpr std::int64_t kNumberBytes = 8;
}

ByteWriter& ByteWriter::number(std::int64_t value) {
  auto bits = static_cast<std::uint64_t>(value);
  for (std::int64_t i = 0; i < kNumberBytes; ++i, bits >>= 8) {
    bytes_.push_back(static_cast<char>(bits & 0xFF));
  }
  return *this;
}

ByteWriter& ByteWriter::text(std::string_view value) {
  number(std::ssize(value));
  bytes_.append(value);
  return *this;
}

ByteWriter& ByteWriter::numbers(const std::vector<std::int64_t>& values) {
  number(std::ssize(values));
  for (const auto value : values) number(value);
  return *this;
}

std::int64_t ByteReader::number() {
  if (std::ssize(rest_) < kNumberBytes) fail("they end too early");
  std::uint64_t bits = 0;
  for (std::size_t i = kNumberBytes; i-- > 0;) {
    bits = bits << 8 | static_cast<unsigned char>(rest_[i]);
  }
  rest_.remove_prefix(kNumberBytes);
  return static_cast<std::int64_t>(bits);
}

std::int64_t ByteReader::count(std::int64_t least) {
  const std::int64_t count = number();
  if (count < 0 || count > std::ssize(rest_) / least) fail(concat("a length of ", count));
  return count;
}

std::string ByteReader::text() {
  const auto length = static_cast<std::size_t>(count(1));
  std::string value(rest_.substr(0, length));
  rest_.remove_prefix(length);
  return value;
}

std::vector<std::int64_t> ByteReader::numbers() {
  std::vector<std::int64_t> values(static_cast<std::size_t>(count(kNumberBytes)));
  for (auto& value : values) value = number();
  return values;
}

void ByteReader::finish() const {
  if (!rest_.empty()) fail(concat(rest_.size(), " bytes too many"));
}

void ByteReader::fail(const std::string& why) const {
  tessera::detail::throw_invalid_argument(
      concat(what_, ": the bytes given are not those of to_bytes: ", why));
}

}  // namespace tessera::sharded::detail
