#pragma once

#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "tessera/comm/group.h"
#include "tessera/comm/transport.h"

namespace tessera::detail {

/// Waits for an operation, then does something with what has arrived; once.
class AfterPending : public Pending {
 public:
  AfterPending(PendingPtr first, std::function<void()> then)
      : first_(std::move(first)), then_(std::move(then)) {}

  void wait() override {
    if (then_ == nullptr) return;
    first_->wait();
    std::exchange(then_, nullptr)();
  }
  bool is_done() override { return then_ == nullptr; }

 private:
  PendingPtr first_;
  std::function<void()> then_;
};

/// Carries out the messages of a step as an all-to-all of packed buffers, in as many rounds as the
/// step has. For engines without access to each other's memory.
[[nodiscard]] PendingPtr packed_exchange(Transport& transport, const Group& group,
                                         std::shared_ptr<const RankStep> own, const at::Tensor& out,
                                         const at::Tensor& in);

/// The box of the same sizes that begins at zero.
[[nodiscard]] std::vector<Extent> whole_box(std::span<const Extent> box);

/// Copies all of a tensor to a contiguous one of the same shape.
void copy_whole(const at::Tensor& out, const at::Tensor& in);

/// Takes a flat buffer of parts one behind the other, cut along tensor dim `dim` of `shape` with the
/// given sizes, apart into `out`, or puts `in` together to one.
void unpack_parts(const at::Tensor& out, const at::Tensor& packed, const Shape& shape,
                  std::span<const std::int64_t> sizes, std::int64_t dim);
void pack_parts(const at::Tensor& packed, const at::Tensor& in, const Shape& shape,
                std::span<const std::int64_t> sizes, std::int64_t dim);

}  // namespace tessera::detail
