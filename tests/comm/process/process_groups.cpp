#include "comm/process/process_groups.h"

#include <chrono>
#include <exception>
#include <iostream>
#include <stdexcept>
#include <utility>

#include <gtest/gtest.h>

#include <ATen/Parallel.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "comm/process/gloo_ranks.h"

namespace tessera::test {
namespace {

using std::chrono::milliseconds;
using BackendPtr = c10::intrusive_ptr<c10d::Backend>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;
using Tensors = std::vector<at::Tensor>;

/// Work that can be waited for once, to its end or the time limit: otherwise it has failed.
class RelayedWork : public c10d::Work {
 public:
  explicit RelayedWork(WorkPtr inner) : inner_(std::move(inner)) {}

  bool isCompleted() override { return misused_ != nullptr || inner_->isCompleted(); }
  bool isSuccess() const override { return misused_ == nullptr && inner_->isSuccess(); }
  std::exception_ptr exception() const override {
    return misused_ != nullptr ? misused_ : inner_->exception();
  }
  void abort() override { inner_->abort(); }
  bool wait(milliseconds timeout) override {
    // Shorter than any time limit of these tests.
    if (timeout != kNoTimeout && timeout < milliseconds(1000)) {
      misused_ = std::make_exception_ptr(std::runtime_error("relay: waited for by and by"));
    }
    if (misused_ != nullptr) std::rethrow_exception(misused_);
    return inner_->wait(timeout);
  }

 private:
  WorkPtr inner_;
  std::exception_ptr misused_;
};

class RelayBackend : public c10d::Backend {
 public:
  explicit RelayBackend(BackendPtr inner)
      : Backend(inner->getRank(), inner->getSize()), inner_(std::move(inner)) {}

  const std::string getBackendName() const override { return "relay"; }

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    return relayed(inner_->broadcast(tensors, options));
  }
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    return relayed(inner_->allreduce(tensors, options));
  }
  WorkPtr _allgather_base(at::Tensor& out, at::Tensor& in,
                          const c10d::AllgatherOptions& options) override {
    return relayed(inner_->_allgather_base(out, in, options));
  }
  WorkPtr alltoall_base(at::Tensor& out, at::Tensor& in, std::vector<std::int64_t>& out_splits,
                        std::vector<std::int64_t>& in_splits,
                        const c10d::AllToAllOptions& options) override {
    return relayed(inner_->alltoall_base(out, in, out_splits, in_splits, options));
  }
  WorkPtr barrier(const c10d::BarrierOptions& options) override {
    return relayed(inner_->barrier(options));
  }
  WorkPtr send(Tensors& tensors, int to, int tag) override {
    return relayed(inner_->send(tensors, to, tag));
  }
  WorkPtr recv(Tensors& tensors, int from, int tag) override {
    return relayed(inner_->recv(tensors, from, tag));
  }

 private:
  static WorkPtr relayed(WorkPtr work) { return c10::make_intrusive<RelayedWork>(std::move(work)); }

  BackendPtr inner_;
};

c10::intrusive_ptr<c10d::Store> open_store(const std::string& file, const std::string& name) {
  return c10::make_intrusive<c10d::PrefixStore>(name,
                                                c10::make_intrusive<c10d::FileStore>(file, -1));
}

}  // namespace

GroupPtr make_process_group(const std::string& file, const std::string& name, int rank, int size,
                            GroupBackend backend) {
  const auto store = open_store(file, name);
  auto options = c10d::ProcessGroupGloo::Options::create(milliseconds(30'000));
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
  const auto gloo = c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, options);
  auto group = c10::make_intrusive<c10d::ProcessGroup>(store, rank, size);
  if (backend == GroupBackend::gloo) {
    group->setBackend(at::kCPU, c10d::ProcessGroup::GLOO, gloo);
  } else {
    group->setBackend(at::kCPU, c10d::ProcessGroup::CUSTOM,
                      c10::make_intrusive<RelayBackend>(gloo));
  }
  return group;
}

GroupPtr make_bare_process_group(const std::string& file, int rank, int size) {
  return c10::make_intrusive<c10d::ProcessGroup>(open_store(file, "bare"), rank, size);
}

c10::intrusive_ptr<c10d::Store> open_signs(const std::string& file) {
  return open_store(file, "signs");
}

std::vector<ProcessResult> with_process_groups(
    int size, const std::function<void(GroupPtr, const std::string& file)>& fn,
    GroupBackend backend) {
  const TemporaryFolder folder;
  Processes processes(size, [&](std::int64_t rank) {
    const std::string file = folder.path() + "/store";
    at::set_num_threads(1);
    try {
      fn(make_process_group(file, "all", static_cast<int>(rank), size, backend), file);
    } catch (const std::exception& error) {
      std::cout << "threw: " << error.what() << std::endl;
      return 1;
    }
    return ::testing::Test::HasFailure() ? 1 : 0;
  });
  return processes.finish(milliseconds(120'000));
}

void expect_success(const std::vector<ProcessResult>& results) {
  for (const auto& result : results) {
    EXPECT_EQ(result.status, 0) << outputs_of(results);
    EXPECT_FALSE(result.overdue);
  }
}

}  // namespace tessera::test
