#include "comm/process/fault_work.h"

#include <iostream>

#include <unistd.h>

#include <ATen/ops/full.h>

#include "tessera/base/concat.h"
#include "tessera/comm/world_state.h"

namespace tessera::test {

void work_once(const Group& group, std::int64_t round) {
  detail::Transport& transport = detail::connect(group);
  const at::Tensor data = at::full({100}, 1, at::kFloat);
  transport.check({"all_reduce", concat("float32[100] sum, round ", round)});
  transport.all_reduce(data, ReduceOp::sum)->wait();
  const std::vector<std::int64_t> counts(static_cast<std::size_t>(group.size()), 20'000);
  const at::Tensor sent = at::full({20'000 * group.size()}, 2, at::kLong);
  const at::Tensor received = at::full({20'000 * group.size()}, 0, at::kLong);
  transport.check({"all_to_all_single", concat("int64[20000] round ", round)});
  transport.all_to_all(received, sent, counts, counts)->wait();
  transport.check({"barrier", ""});
  transport.barrier();
}

void report_ready(const World& world) {
  std::cout << concat("ready, rank ", world.rank(), " is process ", getpid(), '\n') << std::flush;
}

void work_forever(World& world) {
  report_ready(world);
  for (std::int64_t round = 0;; ++round) work_once(world.group(), round);
}

}  // namespace tessera::test
