#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "tessera/comm/direct_exchange.h"
#include "tessera/comm/threads/thread_hub.h"
#include "tessera/comm/transport.h"

namespace tessera::detail {

/// One rank's end of a group of threads.
class ThreadTransport : public Transport, public DirectExchange {
 public:
  ThreadTransport(std::shared_ptr<ThreadHub> hub, std::shared_ptr<ThreadGroup> group,
                  std::size_t member, std::chrono::milliseconds timeout)
      : hub_(std::move(hub)), group_(std::move(group)), member_(member), timeout_(timeout) {}

  [[nodiscard]] const char* engine() const override { return "threads"; }
  void check(const Fingerprint& fingerprint) override;
  std::vector<std::int64_t> check_records(const Fingerprint& fingerprint,
                                          std::span<const std::int64_t> record) override;
  PendingPtr all_reduce(const at::Tensor& data, ReduceOp op) override;
  PendingPtr all_reduce_into(const at::Tensor& out, const at::Tensor& in, ReduceOp op) override;
  PendingPtr all_gather(const at::Tensor& out, const at::Tensor& in,
                        std::span<const std::int64_t> counts) override;
  PendingPtr reduce_scatter(const at::Tensor& out, const at::Tensor& in,
                            std::span<const std::int64_t> counts, ReduceOp op) override;
  PendingPtr all_to_all(const at::Tensor& out, const at::Tensor& in,
                        std::span<const std::int64_t> receive_counts,
                        std::span<const std::int64_t> send_counts) override;
  PendingPtr broadcast(const at::Tensor& data, std::int64_t root) override;
  PendingPtr gather(const at::Tensor& out, const at::Tensor& in,
                    std::span<const std::int64_t> counts, std::int64_t root) override;
  PendingPtr scatter(const at::Tensor& out, const at::Tensor& in,
                     std::span<const std::int64_t> counts, std::int64_t root) override;
  PendingPtr send(const at::Tensor& data, std::int64_t to, std::int64_t tag) override;
  PendingPtr receive(const at::Tensor& data, std::int64_t from, std::int64_t tag) override;
  void barrier() override;
  [[nodiscard]] bool exchanges_directly() const override { return true; }
  PendingPtr exchange(const at::Tensor& out, const at::Tensor& in,
                      std::shared_ptr<const RankStep> own) override;
  PendingPtr exchange_all(std::span<const ExchangePart> parts) override;

 private:
  /// Takes the call that `check` announced; empty when it announced none.
  ThreadOp::Announced take_announced();
  PendingPtr post(std::shared_ptr<ThreadOp> op);
  PendingPtr post_pair(const ThreadHub::Route& route, std::size_t member,
                       std::shared_ptr<ThreadOp> op);

  std::shared_ptr<ThreadHub> hub_;
  std::shared_ptr<ThreadGroup> group_;
  std::size_t member_;
  std::chrono::milliseconds timeout_;
  std::uint64_t next_number_ = 0;
  ThreadOp::Announced announced_;
};

}  // namespace tessera::detail
