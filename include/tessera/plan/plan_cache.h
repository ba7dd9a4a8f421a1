#pragma once

#include <cstddef>
#include <cstdint>

namespace tessera {

/// What the cache behind `plan_redistribute` did since the process began or `clear_plan_cache`.
struct PlanCacheInfo {
  std::size_t size = 0;
  std::size_t capacity = 0;
  std::uint64_t hits = 0;
  std::uint64_t misses = 0;
};

[[nodiscard]] PlanCacheInfo plan_cache_info();

/// Sets how many plans are kept (1024 unless set); the least recently used go first. 0 keeps none.
void set_plan_cache_capacity(std::size_t capacity);

/// Forgets all plans and counts. Plans in use stay valid.
void clear_plan_cache();

}  // namespace tessera
