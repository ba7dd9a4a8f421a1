#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

namespace tessera::test {

/// Counts what libtorch allocates and frees on the calling thread while it is alive: of one rank,
/// since ranks are threads.
class MemoryCount {
 public:
  MemoryCount() : log_(std::make_shared<Log>()), guard_(c10::DebugInfoKind::PROFILER_STATE, log_) {}

  /// The bytes that are allocated, beyond those at the beginning, and the most that were.
  [[nodiscard]] std::int64_t bytes() const { return log_->bytes; }
  [[nodiscard]] std::int64_t peak() const { return log_->peak; }

 private:
  struct Log final : c10::MemoryReportingInfoBase {
    void reportMemoryUsage(void* /*pointer*/, std::int64_t size, std::size_t /*allocated*/,
                           std::size_t /*reserved*/, c10::Device /*device*/) override {
      bytes += size;
      peak = std::max(peak, bytes);
    }
    bool memoryProfilingEnabled() const override { return true; }

    std::int64_t bytes = 0;
    std::int64_t peak = 0;
  };

  std::shared_ptr<Log> log_;
  c10::DebugInfoGuard guard_;
};

}  // namespace tessera::test
