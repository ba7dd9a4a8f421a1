#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/comm/transport.h"

namespace tessera::detail {

/// FNV-1a: the same in every process and build, which std::hash need not be. What comes before it can be
/// its seed.
[[nodiscard]] std::uint64_t hash_text(std::string_view text,
                                      std::uint64_t seed = 0xcbf29ce484222325ULL);

/// What the members of a group compare before data moves, as numbers of a fixed size, so that the
/// comparison itself cannot be mismatched.
struct CheckRecord {
  /// So many numbers of the caller fit in, and save a second exchange.
  static constexpr std::size_t kInline = 12;
  static constexpr std::size_t kSize = 4 + kInline;
  using Words = std::array<std::int64_t, kSize>;

  /// Of the operation and its arguments.
  std::int64_t hash = 0;
  /// How many operations the member has begun on the group before this one.
  std::int64_t sequence = 0;
  /// How many numbers come along.
  std::int64_t length = 0;
  /// Of the claims that the member has made before.
  std::int64_t claims = 0;

  bool operator==(const CheckRecord&) const = default;
};

[[nodiscard]] CheckRecord make_record(const Fingerprint& fingerprint, std::uint64_t sequence,
                                      std::size_t length, const Claims& claims = {});

/// The record, and the first `kInline` of the caller's numbers; and back.
[[nodiscard]] CheckRecord::Words pack(const CheckRecord& record,
                                      std::span<const std::int64_t> numbers);
[[nodiscard]] CheckRecord unpack(std::span<const std::int64_t> words);

/// Returns the first member whose record differs from member 0's; nothing when all agree.
[[nodiscard]] std::optional<std::size_t> find_difference(std::span<const CheckRecord> records);

/// A call and the claims before it as text of a fixed size, for when records differ. Longer ones are
/// cut.
struct CallText {
  static constexpr std::size_t kSize = 128;
  using Words = std::array<std::int64_t, kSize>;
};
[[nodiscard]] CallText::Words pack_call(const Fingerprint& fingerprint, const Claims& claims = {});
[[nodiscard]] std::string unpack_call(std::span<const std::int64_t> words);

/// One member's side of a disagreement.
struct Side {
  std::int64_t rank = 0;
  std::string call;
  CheckRecord record;
  std::string claims = {};
};
[[nodiscard]] Side unpack_side(std::int64_t rank, std::span<const std::int64_t> call,
                               const CheckRecord& record);

/// `the ranks do not agree: rank 0 calls all_reduce(f32[4] sum), rank 2 calls all_reduce(f32[5]
/// sum)`; says so when it is not the calls that differ.
[[nodiscard]] std::string describe_difference(const Side& first, const Side& second);

}  // namespace tessera::detail
