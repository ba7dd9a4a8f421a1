#include "tessera/comm/c10d/agreement.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "tessera/base/concat.h"

namespace tessera::detail {
namespace {

/// Between the call and the claims.
constexpr char kClaims = '\n';

std::string call_of(const Fingerprint& fingerprint) {
  return concat(fingerprint.op, '(', fingerprint.arguments, ')');
}

}  // namespace

std::uint64_t hash_text(std::string_view text, std::uint64_t seed) {
  std::uint64_t hash = seed;
  for (const char c : text) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3ULL;
  }
  return hash;
}

CheckRecord make_record(const Fingerprint& fingerprint, std::uint64_t sequence, std::size_t length,
                        const Claims& claims) {
  std::uint64_t hash = hash_text(fingerprint.op);
  hash = hash_text("(", hash);
  hash = hash_text(fingerprint.arguments, hash);
  return {static_cast<std::int64_t>(hash), static_cast<std::int64_t>(sequence),
          static_cast<std::int64_t>(length), static_cast<std::int64_t>(claims.hash())};
}

CheckRecord::Words pack(const CheckRecord& record, std::span<const std::int64_t> numbers) {
  CheckRecord::Words words{record.hash, record.sequence, record.length, record.claims};
  const std::size_t count = std::min(numbers.size(), CheckRecord::kInline);
  std::copy_n(numbers.begin(), count, words.end() - CheckRecord::kInline);
  return words;
}

CheckRecord unpack(std::span<const std::int64_t> words) {
  return {words[0], words[1], words[2], words[3]};
}

std::optional<std::size_t> find_difference(std::span<const CheckRecord> records) {
  for (std::size_t i = 1; i < records.size(); ++i) {
    if (records[i] != records[0]) return i;
  }
  return std::nullopt;
}

CallText::Words pack_call(const Fingerprint& fingerprint, const Claims& claims) {
  std::string call = call_of(fingerprint);
  if (!claims.empty()) call += kClaims + claims.to_string();
  constexpr std::size_t kBytes = CallText::kSize * sizeof(std::int64_t) - 1;
  if (call.size() > kBytes) call = concat(std::string_view(call).substr(0, kBytes - 4), " ...");
  CallText::Words words{};
  std::memcpy(words.data(), call.data(), call.size());
  return words;
}

std::string unpack_call(std::span<const std::int64_t> words) {
  std::string call(words.size_bytes(), '\0');
  std::memcpy(call.data(), words.data(), words.size_bytes());
  return call.substr(0, call.find('\0'));
}

Side unpack_side(std::int64_t rank, std::span<const std::int64_t> call, const CheckRecord& record) {
  const std::string text = unpack_call(call);
  const std::size_t end = text.find(kClaims);
  if (end == std::string::npos) return {rank, text, record};
  return {rank, text.substr(0, end), record, text.substr(end + 1)};
}

std::string describe_difference(const Side& first, const Side& second) {
  const std::string ranks = concat("the ranks do not agree: rank ", first.rank, " calls ");
  if (first.record.claims != second.record.claims) {
    return concat(ranks, first.call, first.claims, "; rank ", second.rank, " calls ", second.call,
                  second.claims, advice_on_claims());
  }
  if (first.call != second.call) {
    return concat(ranks, first.call, ", rank ", second.rank, " calls ", second.call);
  }
  if (first.record.sequence != second.record.sequence) {
    return concat(ranks, first.call, " as operation ", first.record.sequence,
                  " of the group, rank ", second.rank, " as operation ", second.record.sequence);
  }
  if (first.record.length != second.record.length) {
    return concat(ranks, first.call, " with ", first.record.length, " number(s), rank ",
                  second.rank, " with ", second.record.length);
  }
  return concat(ranks, first.call, ", rank ", second.rank, " the same but for its end");
}

}  // namespace tessera::detail
