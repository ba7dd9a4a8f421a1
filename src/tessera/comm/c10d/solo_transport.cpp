#include "tessera/comm/c10d/solo_transport.h"

#include <ATen/core/Tensor.h>

#include "tessera/base/check.h"
#include "tessera/comm/box_copy.h"

namespace tessera::detail {
namespace {

class Done : public Pending {
 public:
  void wait() override {}
  bool is_done() override { return true; }
};

PendingPtr copied(const at::Tensor& out, const at::Tensor& in) {
  copy_flat(out, 0, in, 0, in.numel());
  return std::make_shared<Done>();
}

class SoloTransport : public Transport {
 public:
  explicit SoloTransport(const char* engine) : engine_(engine) {}

  [[nodiscard]] const char* engine() const override { return engine_; }
  void check(const Fingerprint& /*fingerprint*/) override {}
  std::vector<std::int64_t> check_records(const Fingerprint& /*fingerprint*/,
                                          std::span<const std::int64_t> record) override {
    return {record.begin(), record.end()};
  }
  PendingPtr all_reduce(const at::Tensor& /*data*/, ReduceOp /*op*/) override {
    return std::make_shared<Done>();
  }
  PendingPtr all_gather(const at::Tensor& out, const at::Tensor& in,
                        std::span<const std::int64_t> /*counts*/) override {
    return copied(out, in);
  }
  PendingPtr reduce_scatter(const at::Tensor& out, const at::Tensor& in,
                            std::span<const std::int64_t> /*counts*/, ReduceOp /*op*/) override {
    return copied(out, in);
  }
  PendingPtr all_to_all(const at::Tensor& out, const at::Tensor& in,
                        std::span<const std::int64_t> /*receive_counts*/,
                        std::span<const std::int64_t> /*send_counts*/) override {
    return copied(out, in);
  }
  PendingPtr broadcast(const at::Tensor& /*data*/, std::int64_t /*root*/) override {
    return std::make_shared<Done>();
  }
  PendingPtr gather(const at::Tensor& out, const at::Tensor& in,
                    std::span<const std::int64_t> /*counts*/, std::int64_t /*root*/) override {
    return copied(out, in);
  }
  PendingPtr scatter(const at::Tensor& out, const at::Tensor& in,
                     std::span<const std::int64_t> /*counts*/, std::int64_t /*root*/) override {
    return copied(out, in);
  }
  PendingPtr send(const at::Tensor& /*data*/, std::int64_t /*to*/, std::int64_t /*tag*/) override {
    throw_nobody_else("send");
  }
  PendingPtr receive(const at::Tensor& /*data*/, std::int64_t /*from*/,
                     std::int64_t /*tag*/) override {
    throw_nobody_else("recv");
  }
  void barrier() override {}

 private:
  [[noreturn]] static void throw_nobody_else(const char* op) {
    throw InvalidArgument(concat(op, ": called on a group of one rank; there is nobody else"));
  }

  const char* engine_;
};

}  // namespace

std::unique_ptr<Transport> make_solo_transport(const char* engine) {
  return std::make_unique<SoloTransport>(engine);
}

}  // namespace tessera::detail
