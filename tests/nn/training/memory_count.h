#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

namespace tessera::test {

/// Counts what libtorch allocates for each rank of this process, and the most that it ever was. Memory
/// belongs to the rank that allocated it, whichever frees it: ranks that are threads may let go of what
/// another one sent them.
class MemoryCount {
 public:
  explicit MemoryCount(std::int64_t ranks) : ledger_(std::make_shared<Ledger>(ranks)) {}

  /// While alive, the calling thread's allocations count as `rank`'s. Every rank of the process must
  /// have one.
  class Scope {
   public:
    Scope(const MemoryCount& count, std::int64_t rank)
        : guard_(c10::DebugInfoKind::PROFILER_STATE, std::make_shared<Reporter>(count, rank)) {}

   private:
    c10::DebugInfoGuard guard_;
  };

  /// Bytes beyond those from before the first scope, and the most since the beginning or `reset_peak`.
  [[nodiscard]] std::int64_t bytes(std::int64_t rank) const { return ledger_->get(rank).bytes; }
  [[nodiscard]] std::int64_t peak(std::int64_t rank) const { return ledger_->get(rank).peak; }
  void reset_peak(std::int64_t rank) { ledger_->reset_peak(rank); }

 private:
  struct Account {
    std::int64_t bytes = 0;
    std::int64_t peak = 0;
  };

  class Ledger {
   public:
    explicit Ledger(std::int64_t ranks) : accounts_(static_cast<std::size_t>(ranks)) {}

    void report(const void* pointer, std::int64_t size, std::int64_t rank) {
      const std::lock_guard lock(mutex_);
      forget(pointer);
      if (size <= 0) return;
      owners_[pointer] = {rank, size};
      Account& account = at(rank);
      account.bytes += size;
      account.peak = std::max(account.peak, account.bytes);
    }
    [[nodiscard]] Account get(std::int64_t rank) {
      const std::lock_guard lock(mutex_);
      return at(rank);
    }
    void reset_peak(std::int64_t rank) {
      const std::lock_guard lock(mutex_);
      at(rank).peak = at(rank).bytes;
    }

   private:
    struct Block {
      std::int64_t rank;
      std::int64_t size;
    };

    Account& at(std::int64_t rank) { return accounts_.at(static_cast<std::size_t>(rank)); }
    void forget(const void* pointer) {
      const auto known = owners_.find(pointer);
      if (known == owners_.end()) return;
      at(known->second.rank).bytes -= known->second.size;
      owners_.erase(known);
    }

    std::mutex mutex_;
    std::vector<Account> accounts_;
    std::unordered_map<const void*, Block> owners_;
  };

  class Reporter final : public c10::MemoryReportingInfoBase {
   public:
    Reporter(const MemoryCount& count, std::int64_t rank) : ledger_(count.ledger_), rank_(rank) {}

    void reportMemoryUsage(void* pointer, std::int64_t size, std::size_t /*allocated*/,
                           std::size_t /*reserved*/, c10::Device /*device*/) override {
      ledger_->report(pointer, size, rank_);
    }
    [[nodiscard]] bool memoryProfilingEnabled() const override { return true; }

   private:
    std::shared_ptr<Ledger> ledger_;
    std::int64_t rank_;
  };

  std::shared_ptr<Ledger> ledger_;
};

}  // namespace tessera::test
