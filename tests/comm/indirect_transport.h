#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "tessera/comm/transport.h"

namespace tessera::test {

/// A transport that hides from its users that they could reach each other's memory, so that threads
/// exchange data as processes do.
class IndirectTransport : public detail::Transport {
 public:
  explicit IndirectTransport(std::unique_ptr<detail::Transport> inner) : inner_(std::move(inner)) {}

  using PendingPtr = detail::PendingPtr;
  using Counts = std::span<const std::int64_t>;

  [[nodiscard]] const char* engine() const override { return inner_->engine(); }
  void check(const detail::Fingerprint& fingerprint) override { inner_->check(fingerprint); }
  std::vector<std::int64_t> check_records(const detail::Fingerprint& fingerprint,
                                          Counts record) override {
    return inner_->check_records(fingerprint, record);
  }
  PendingPtr all_reduce(const at::Tensor& data, ReduceOp op) override {
    return inner_->all_reduce(data, op);
  }
  PendingPtr all_gather(const at::Tensor& out, const at::Tensor& in, Counts counts) override {
    return inner_->all_gather(out, in, counts);
  }
  PendingPtr reduce_scatter(const at::Tensor& out, const at::Tensor& in, Counts counts,
                            ReduceOp op) override {
    return inner_->reduce_scatter(out, in, counts, op);
  }
  PendingPtr all_to_all(const at::Tensor& out, const at::Tensor& in, Counts receive_counts,
                        Counts send_counts) override {
    return inner_->all_to_all(out, in, receive_counts, send_counts);
  }
  PendingPtr broadcast(const at::Tensor& data, std::int64_t root) override {
    return inner_->broadcast(data, root);
  }
  PendingPtr gather(const at::Tensor& out, const at::Tensor& in, Counts counts,
                    std::int64_t root) override {
    return inner_->gather(out, in, counts, root);
  }
  PendingPtr scatter(const at::Tensor& out, const at::Tensor& in, Counts counts,
                     std::int64_t root) override {
    return inner_->scatter(out, in, counts, root);
  }
  PendingPtr send(const at::Tensor& data, std::int64_t to, std::int64_t tag) override {
    return inner_->send(data, to, tag);
  }
  PendingPtr receive(const at::Tensor& data, std::int64_t from, std::int64_t tag) override {
    return inner_->receive(data, from, tag);
  }
  void barrier() override { inner_->barrier(); }

 private:
  std::unique_ptr<detail::Transport> inner_;
};

}  // namespace tessera::test
