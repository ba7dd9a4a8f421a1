#include "tessera/plan/cost_model.h"

#include <algorithm>
#include <limits>

#include "tessera/base/hash.h"

namespace tessera {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

std::int64_t saturating_product(std::int64_t a, std::int64_t b) {
  return a != 0 && b > kMost / a ? kMost : a * b;
}

std::int64_t saturating_sum(std::int64_t a, std::int64_t b) {
  return a > kMost - b ? kMost : a + b;
}

}  // namespace

std::int64_t CostModel::cost_ps(const Traffic& traffic) const {
  const std::int64_t bytes = std::max(traffic.received_bytes, traffic.sent_bytes);
  std::int64_t cost = saturating_sum(launch_ps, saturating_product(message_ps, traffic.messages));
  cost = saturating_sum(cost, saturating_product(byte_ps, bytes));
  return saturating_sum(cost, saturating_product(packed_byte_ps, traffic.packed_bytes));
}

std::size_t CostModel::hash() const {
  std::size_t seed = static_cast<std::size_t>(launch_ps);
  for (const auto price : {message_ps, byte_ps, packed_byte_ps}) {
    seed = hash_combine(seed, static_cast<std::size_t>(price));
  }
  return seed;
}

}  // namespace tessera
