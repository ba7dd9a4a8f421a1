#include "tessera/comm/large_memory.h"

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

#ifdef __linux__
#include <sys/mman.h>
#endif

#include <ATen/EmptyTensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/Allocator.h>

namespace tessera::detail {
namespace {

constexpr std::size_t kMegabyte = std::size_t{1} << 20;
constexpr std::size_t kHugePage = 2 * kMegabyte;
/// Below this, pages are few and libtorch's own allocator finds memory that was used before.
constexpr std::size_t kLeastBytes = 4 * kMegabyte;

struct Block {
  void* memory;
  std::size_t bytes;
};

Block make_block(std::size_t bytes) {
  bytes = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  void* memory = std::aligned_alloc(kHugePage, bytes);
  if (memory == nullptr) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
  // A hint: without huge pages it is memory all the same.
  (void)madvise(memory, bytes, MADV_HUGEPAGE);
#endif
  return {memory, bytes};
}

std::size_t limit_from_environment() {
  const char* megabytes = std::getenv("TESSERA_KEEP_MEMORY");
  if (megabytes == nullptr) return 256 * kMegabyte;
  return static_cast<std::size_t>(std::max(0L, std::strtol(megabytes, nullptr, 10))) * kMegabyte;
}

/// The blocks that are kept, the one that was dropped last at the end. Thread-safe.
class KeptBlocks {
 public:
  /// Returns a block of at least `bytes`, and not of much more.
  Block take(std::size_t bytes) {
    {
      const std::lock_guard lock(mutex_);
      const auto found = std::find_if(blocks_.rbegin(), blocks_.rend(), [&](const Block& block) {
        return block.bytes >= bytes && block.bytes - bytes <= std::max(bytes / 8, kHugePage);
      });
      if (found != blocks_.rend()) {
        const Block block = *found;
        bytes_ -= block.bytes;
        blocks_.erase(std::next(found).base());
        return block;
      }
    }
    return make_block(bytes);
  }

  void give_back(const Block& block) {
    std::vector<Block> dropped;
    {
      const std::lock_guard lock(mutex_);
      blocks_.push_back(block);
      bytes_ += block.bytes;
      dropped = shrink();
    }
    // Outside of the lock, since returning memory to the system takes its time.
    for (const auto& each : dropped) std::free(each.memory);
  }

  std::size_t set_limit(std::size_t bytes) {
    std::vector<Block> dropped;
    std::size_t before = 0;
    {
      const std::lock_guard lock(mutex_);
      before = std::exchange(limit_, bytes);
      dropped = shrink();
    }
    for (const auto& each : dropped) std::free(each.memory);
    return before;
  }

  [[nodiscard]] std::size_t bytes() const {
    const std::lock_guard lock(mutex_);
    return bytes_;
  }

 private:
  std::vector<Block> shrink() {
    std::vector<Block> dropped;
    while (bytes_ > limit_) {
      dropped.push_back(blocks_.front());
      bytes_ -= blocks_.front().bytes;
      blocks_.pop_front();
    }
    return dropped;
  }

  mutable std::mutex mutex_;
  std::deque<Block> blocks_;
  std::size_t bytes_ = 0;
  std::size_t limit_ = limit_from_environment();
};

KeptBlocks& kept_blocks() {
  static auto& blocks =
      *new KeptBlocks();  // Never destroyed: tensors may be dropped at the very end.
  return blocks;
}

void give_back(void* context) {
  const std::unique_ptr<Block> block(static_cast<Block*>(context));
  kept_blocks().give_back(*block);
}

class LargeAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    auto block = std::make_unique<Block>(kept_blocks().take(bytes));
    void* memory = block->memory;
    return {memory, block.release(), &give_back, c10::Device(c10::kCPU)};
  }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
};

LargeAllocator& large_allocator() {
  static auto& allocator = *new LargeAllocator();
  return allocator;
}

}  // namespace

at::Tensor new_tensor(at::IntArrayRef sizes, const at::TensorOptions& options) {
  std::size_t bytes = options.dtype().itemsize();
  for (const auto size : sizes) bytes *= static_cast<std::size_t>(size);
  if (bytes < kLeastBytes || !options.device().is_cpu()) return at::empty(sizes, options);
  return at::Tensor(at::detail::empty_generic(sizes, &large_allocator(),
                                              c10::DispatchKeySet(c10::DispatchKey::CPU),
                                              c10::typeMetaToScalarType(options.dtype()),
                                              /*memory_format_opt=*/std::nullopt));
}

std::size_t kept_bytes() { return kept_blocks().bytes(); }

std::size_t set_kept_bytes_limit(std::size_t bytes) { return kept_blocks().set_limit(bytes); }

}  // namespace tessera::detail
