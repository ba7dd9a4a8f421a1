#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <c10/core/ScalarType.h>

#include "support/random_layout.h"
#include "tessera/comm/collectives.h"
#include "tessera/comm/group.h"

// Calls of all functions of collectives.h, for tests in which one member's differs.

namespace tessera::test {

/// Their rows: divisible by the size of every group.
inline constexpr std::int64_t kRows = 12;

/// A call of a collective.
struct Call {
  std::string collective;
  at::ScalarType dtype = at::kFloat;
  std::vector<std::int64_t> shape = {kRows, 3};
  std::int64_t dim = 0;
  ReduceOp reduce = ReduceOp::sum;
  std::int64_t root = 0;
  std::vector<std::int64_t> sizes = {};
  /// Of permute.
  std::vector<std::int64_t> destinations = {};
};

/// What everybody calls, but for details that the generator chooses; the permutation is a ring.
[[nodiscard]] Call usual_call(const std::string& collective, std::int64_t members, Random& random);

void perform(const Call& call, const Group& group);

/// One end of a message of what the call names.
struct Message {
  bool is_send = false;
  /// A member.
  std::int64_t peer = 0;
  std::int64_t tag = 0;
};

void perform(const Call& call, const Message& message, const Group& group);

/// The name of a collective that messages show.
[[nodiscard]] std::string c10d_name(const std::string& collective);

/// What the call throws, which must be a `CommError` of the group.
[[nodiscard]] std::string comm_error_of(const std::function<void()>& call, const Group& group);

}  // namespace tessera::test
