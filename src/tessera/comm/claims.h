#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <c10/core/ScalarType.h>

#include "tessera/layout/layout.h"

namespace tessera {
class DeviceMesh;
}

namespace tessera::detail {

/// Note [Claims]
///
/// Ranks go on without asking one another where a question would cost more than the work: what
/// `local_map` returns gets the shape that the arguments suggest. What a rank takes for granted so is
/// a claim. The members of a group compare their claims with the next collective of the group, where
/// they compare their calls anyway. So a claim costs no traffic, and one that is not shared by all is
/// an error of all, before any data moves.

/// What one rank has taken a result of `local_map` for.
struct Claim {
  std::int64_t output = 0;
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  /// Nothing when it asks the others instead.
  std::optional<Layout> layout;

  bool operator==(const Claim&) const = default;
};

/// The claims that a rank has made since the members of a group last compared them.
class Claims {
 public:
  /// Adds one; the first one allocates the memory for all.
  void add(const Claim& claim);
  [[nodiscard]] bool empty() const { return latest_.empty(); }
  /// Returns them, and begins anew.
  [[nodiscard]] Claims take();

  /// The same in every process that has made the same.
  [[nodiscard]] std::uint64_t hash() const;
  /// `, having taken output 0 of local_map for float32[12,4][S(0)] on [4]`; empty for none.
  [[nodiscard]] std::string to_string() const;
  bool operator==(const Claims&) const = default;

 private:
  /// Older ones are kept as a hash only.
  static constexpr std::size_t kMost = 8;

  std::vector<Claim> latest_;
  std::uint64_t older_ = 0;
};

/// Remembers a claim for the mesh's group and for those along its dims, unless checks are off.
void claim(const DeviceMesh& mesh, const Claim& made);

/// What to do about claims that differ, for the end of a message.
[[nodiscard]] const char* advice_on_claims();

}  // namespace tessera::detail
