#pragma once

#include <cstddef>

#include "tessera/plan/plan_cache.h"

namespace tessera::test {

/// An empty plan cache of a capacity of its own, as long as this lives.
class CacheCapacity {
 public:
  explicit CacheCapacity(std::size_t capacity) : before_(plan_cache_info().capacity) {
    clear_plan_cache();
    set_plan_cache_capacity(capacity);
  }
  ~CacheCapacity() {
    clear_plan_cache();
    set_plan_cache_capacity(before_);
  }
  CacheCapacity(const CacheCapacity&) = delete;
  CacheCapacity& operator=(const CacheCapacity&) = delete;

 private:
  std::size_t before_;
};

}  // namespace tessera::test
