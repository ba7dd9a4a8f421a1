#include "shared_copy.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>

namespace tessera::bench {

SharedCopy::SharedCopy(const World& world, std::int64_t elements) {
  const auto cores = std::max<std::int64_t>(1, std::thread::hardware_concurrency());
  // Thread i belongs to rank i modulo the number of ranks.
  threads_ = (cores - world.rank() + world.size() - 1) / world.size();
  in_ = at::ones({elements * threads_ / cores});
  used_ = at::ones_like(in_);
}

void SharedCopy::into_new() const {
  if (threads_ > 0) copy(at::empty_like(in_));
}

void SharedCopy::copy(const at::Tensor& out) const {
  const auto copy_part = [&](std::int64_t part) {
    const std::int64_t begin = in_.numel() * part / threads_;
    const std::int64_t end = in_.numel() * (part + 1) / threads_;
    std::memcpy(out.data_ptr<float>() + begin, in_.const_data_ptr<float>() + begin,
                static_cast<std::size_t>(end - begin) * sizeof(float));
  };
  std::vector<std::jthread> others;
  for (std::int64_t part = 1; part < threads_; ++part) others.emplace_back(copy_part, part);
  if (threads_ > 0) copy_part(0);
}

}  // namespace tessera::bench
