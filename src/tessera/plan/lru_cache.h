#pragma once

#include <cstddef>
#include <list>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "tessera/plan/plan_cache.h"

namespace tessera::detail {

/// Keeps the most recently used values. Thread-safe; values are copied out, so they should be
/// handles.
template <typename Key, typename Value, typename Hash>
class LruCache {
 public:
  explicit LruCache(std::size_t capacity) { info_.capacity = capacity; }

  /// Returns the value of `key`, made by make() when it is not there. make() runs outside of the
  /// lock: two threads that miss at once may both make it, and one of the results is kept. Nothing
  /// is kept when make() throws.
  template <typename Make>
  Value find_or_make(Key key, Make make) {
    {
      const std::lock_guard lock(mutex_);
      const auto found = index_.find(key);
      if (found != index_.end()) {
        ++info_.hits;
        entries_.splice(entries_.begin(), entries_, found->second);
        return found->second->second;
      }
      ++info_.misses;
    }
    Value value = make();
    const std::lock_guard lock(mutex_);
    if (info_.capacity == 0 || index_.contains(key)) return value;
    entries_.emplace_front(key, value);
    index_.emplace(std::move(key), entries_.begin());
    shrink_to(info_.capacity);
    return value;
  }

  [[nodiscard]] PlanCacheInfo info() const {
    const std::lock_guard lock(mutex_);
    PlanCacheInfo info = info_;
    info.size = entries_.size();
    return info;
  }

  void set_capacity(std::size_t capacity) {
    const std::lock_guard lock(mutex_);
    info_.capacity = capacity;
    shrink_to(capacity);
  }

  void clear() {
    const std::lock_guard lock(mutex_);
    shrink_to(0);
    info_.hits = 0;
    info_.misses = 0;
  }

 private:
  using Entries = std::list<std::pair<Key, Value>>;

  void shrink_to(std::size_t size) {
    while (entries_.size() > size) {
      index_.erase(entries_.back().first);
      entries_.pop_back();
    }
  }

  mutable std::mutex mutex_;
  Entries entries_;
  std::unordered_map<Key, typename Entries::iterator, Hash> index_;
  PlanCacheInfo info_;
};

}  // namespace tessera::detail
