#include "layout/allocation_count.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace tessera::test {
namespace {

std::atomic<std::int64_t> live{0};
thread_local std::int64_t so_far = 0;

}  // namespace

std::int64_t live_allocations() { return live.load(); }

std::int64_t allocations_so_far() { return so_far; }

}  // namespace tessera::test

// In a source of its own, so that the compiler cannot inline one of a pair and warn of the other.
void* operator new(std::size_t size) {
  void* memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) throw std::bad_alloc();
  tessera::test::live.fetch_add(1, std::memory_order_relaxed);
  ++tessera::test::so_far;
  return memory;
}

void operator delete(void* memory) noexcept {
  if (memory != nullptr) tessera::test::live.fetch_sub(1, std::memory_order_relaxed);
  std::free(memory);
}

void operator delete(void* memory, std::size_t) noexcept { operator delete(memory); }
