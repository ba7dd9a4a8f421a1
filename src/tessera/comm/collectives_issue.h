#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "tessera/comm/collectives_call.h"
#include "tessera/comm/collectives_packing.h"
#include "tessera/comm/recorder.h"
#include "tessera/comm/transport.h"

namespace tessera::detail {

/// A collective under way: what comes out of it, and what has to stay alive until then.
class Issued : public Pending {
 public:
  /// Begins the record of `call`, with what this rank sends and receives.
  void record(const Call& call, std::int64_t sent_bytes, std::int64_t received_bytes);
  /// Adds an operation to wait for.
  void add(PendingPtr pending) { pending_.push_back(std::move(pending)); }
  /// Adds what is done after all operations; it also keeps alive what it captures.
  void then(std::function<void()> step) { steps_.push_back(std::move(step)); }

  void wait() override;
  [[nodiscard]] bool is_done() override;

  /// Allocated; their values are there after `wait`.
  Tensors results;

 private:
  std::vector<PendingPtr> pending_;
  std::vector<std::function<void()>> steps_;
  std::optional<CommRecorder> recorder_;
};
using IssuedPtr = std::shared_ptr<Issued>;

// Each of these issues what its name says, for calls that the members have agreed on. Tensors are
// plain and are not changed. Called below autograd (`AutoDispatchBelowADInplaceOrView`).

[[nodiscard]] IssuedPtr issue_all_reduce(const Call& call, const Tensors& tensors, ReduceOp op);
[[nodiscard]] IssuedPtr issue_reduce_scatter(const Call& call, const Tensors& tensors,
                                             const Cuts& cuts, ReduceOp op);
[[nodiscard]] IssuedPtr issue_all_gather(const Call& call, const Tensors& tensors,
                                         const Cuts& cuts);
/// Unless something `moves`, no member has anything to send.
[[nodiscard]] IssuedPtr issue_all_to_all(const Call& call, const at::Tensor& x,
                                         const Sizes& receive_splits, const Sizes& send_splits,
                                         bool moves);
[[nodiscard]] IssuedPtr issue_broadcast(const Call& call, const at::Tensor& x, std::int64_t root);
/// The result gets `shape` instead of the piece's own where that is given.
[[nodiscard]] IssuedPtr issue_scatter(const Call& call, const at::Tensor& x, const Cut& cut,
                                      std::int64_t root, const std::optional<Sizes>& shape);
[[nodiscard]] IssuedPtr issue_gather(const Call& call, const at::Tensor& x, const Cut& cut,
                                     std::int64_t root);
/// -1 for members that send nothing.
[[nodiscard]] IssuedPtr issue_permute(const Call& call, const at::Tensor& x,
                                      const Sizes& destinations);

}  // namespace tessera::detail
