// planted_fault race|overflow: two ranks misuse the engine's transport, in ways that a sanitizer must
// report. A sanitizer that no longer bites is worse than none.

#include <atomic>
#include <iostream>
#include <string>
#include <thread>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>

#include "tessera/comm/world.h"
#include "tessera/comm/world_state.h"

namespace tessera::test {
namespace {

/// Who has come how far. Relaxed, so that it decides who comes first but orders nothing else.
class Progress {
 public:
  void mark() { is_done_.store(true, std::memory_order_relaxed); }
  void await() const {
    while (!is_done_.load(std::memory_order_relaxed)) std::this_thread::yield();
  }

 private:
  std::atomic<bool> is_done_ = false;
};

/// Rank 0 changes a tensor that it is still sending, and rank 1 copies from. It may not take the
/// engine's lock in between: that would order the two.
void race(const World& world, Progress& change, Progress& copy) {
  at::Tensor data = at::ones({4});
  detail::Transport& transport = detail::connect(world.group());
  if (world.rank() == 0) {
    const auto pending = transport.broadcast(data, 0);
    data.data_ptr<float>()[0] = 2;
    change.mark();
    copy.await();
    pending->wait();
    return;
  }
  change.await();
  transport.broadcast(data, 0)->wait();
  copy.mark();
}

/// Every rank has room for less than it receives.
void overflow(const World& world) {
  const at::Tensor room = at::empty({7});
  const std::int64_t counts[] = {4, 4};
  detail::connect(world.group()).all_gather(room, at::ones({4}), counts)->wait();
}

}  // namespace
}  // namespace tessera::test

int main(int argc, char** argv) {
  const std::string fault = argc == 2 ? argv[1] : "";
  if (fault != "race" && fault != "overflow") {
    std::cerr << "usage: planted_fault race|overflow\n";
    return 2;
  }
  tessera::test::Progress change, copy;
  tessera::run_ranks(2, [&](tessera::World& world) {
    fault == "race" ? tessera::test::race(world, change, copy) : tessera::test::overflow(world);
  });
  std::cout << "no fault was found\n";
}
