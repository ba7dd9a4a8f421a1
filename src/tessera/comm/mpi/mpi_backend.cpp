#include "tessera/comm/mpi/mpi_backend.h"

#include <atomic>
#include <mutex>
#include <numeric>
#include <utility>

#include <ATen/ops/cat.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "tessera/base/check.h"
#include "tessera/comm/mpi/mpi_runtime.h"

namespace tessera::detail {
namespace {

using Milliseconds = std::chrono::milliseconds;
using Tensors = std::vector<at::Tensor>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

/// The tag of messages that make up a collective; those of `send` come after it.
constexpr int kExchangeTag = 0;

/// For data that is only moved.
MPI_Datatype moved_type(const at::Tensor& tensor) {
  switch (tensor.element_size()) {
    case 1:
      return MPI_BYTE;
    case 2:
      return MPI_INT16_T;
    case 4:
      return MPI_INT32_T;
    case 8:
      return MPI_INT64_T;
    default:
      return MPI_C_DOUBLE_COMPLEX;
  }
}

MPI_Datatype reduced_type(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return MPI_FLOAT;
    case at::kDouble:
      return MPI_DOUBLE;
    case at::kChar:
      return MPI_INT8_T;
    case at::kByte:
      return MPI_UINT8_T;
    case at::kShort:
      return MPI_INT16_T;
    case at::kInt:
      return MPI_INT32_T;
    case at::kLong:
      return MPI_INT64_T;
    case at::kComplexFloat:
      return MPI_C_FLOAT_COMPLEX;
    case at::kComplexDouble:
      return MPI_C_DOUBLE_COMPLEX;
    default:
      TORCH_CHECK(false, "mpi cannot reduce dtype ", tensor.scalar_type());
  }
}

MPI_Op reduce_op(const c10d::ReduceOp& op) {
  switch (op) {
    case c10d::ReduceOp::SUM:
      return MPI_SUM;
    case c10d::ReduceOp::PRODUCT:
      return MPI_PROD;
    case c10d::ReduceOp::MIN:
      return MPI_MIN;
    case c10d::ReduceOp::MAX:
      return MPI_MAX;
    case c10d::ReduceOp::BAND:
      return MPI_BAND;
    case c10d::ReduceOp::BOR:
      return MPI_BOR;
    case c10d::ReduceOp::BXOR:
      return MPI_BXOR;
    default:
      TORCH_CHECK(false, "mpi has no such reduce op");
  }
}

std::byte* element(const at::Tensor& tensor, std::int64_t index) {
  return static_cast<std::byte*>(tensor.data_ptr()) +
         index * static_cast<std::int64_t>(tensor.element_size());
}

class MpiWork : public c10d::Work {
 public:
  MpiWork(std::shared_ptr<MpiOperation> operation, int rank, c10d::OpType type)
      : Work(rank, type), operation_(std::move(operation)) {}

  bool isCompleted() override {
    const std::lock_guard lock(mutex_);
    if (completed_) return true;
    try {
      completed_ = operation_->test();
    } catch (const std::exception&) {
      exception_ = std::current_exception();
      completed_ = true;
    }
    return completed_;
  }

  bool wait(Milliseconds timeout) override {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    MpiBackoff backoff;
    while (!isCompleted()) {
      if (aborted_) return false;
      TORCH_CHECK(timeout == kNoTimeout || std::chrono::steady_clock::now() < deadline,
                  "mpi: timed out");
      backoff.pause();
    }
    const std::lock_guard lock(mutex_);
    if (exception_) std::rethrow_exception(exception_);
    return true;
  }

  void abort() override { aborted_ = true; }

 private:
  // Dropped unfinished, it goes on: MPI still reads or writes what it keeps alive.
  std::shared_ptr<MpiOperation> operation_;
  std::atomic<bool> aborted_{false};
};

class MpiBackend : public c10d::Backend {
 public:
  MpiBackend(std::shared_ptr<MpiRuntime> runtime, MPI_Comm comm, int member, int size,
             std::int64_t most)
      : Backend(member, size), runtime_(std::move(runtime)), comm_(comm), most_(most) {}

  ~MpiBackend() override {
    if (!MpiRuntime::has_ended()) MPI_Comm_free(&comm_);
  }
  MpiBackend(const MpiBackend&) = delete;
  MpiBackend& operator=(const MpiBackend&) = delete;

  const std::string getBackendName() const override { return "mpi"; }

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    Started started(*this, tensors);
    const at::Tensor& data = tensors.at(0);
    for (const auto& piece : cut_into_pieces(data.numel(), most_)) {
      check_mpi(MPI_Ibcast(element(data, piece.begin), piece.count, moved_type(data),
                           static_cast<int>(options.rootRank), comm_, started.next()),
                "MPI_Ibcast");
    }
    return started.work(c10d::OpType::BROADCAST);
  }

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    Started started(*this, tensors);
    const at::Tensor& data = tensors.at(0);
    for (const auto& piece : cut_into_pieces(data.numel(), most_)) {
      check_mpi(
          MPI_Iallreduce(MPI_IN_PLACE, element(data, piece.begin), piece.count, reduced_type(data),
                         reduce_op(options.reduceOp), comm_, started.next()),
          "MPI_Iallreduce");
    }
    return started.work(c10d::OpType::ALLREDUCE);
  }

  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& options) override {
    if (output.numel() > most_) {
      std::vector<Tensors> parts = {output.view({-1}).split(input.numel())};
      Tensors inputs = {input};
      return allgather(parts, inputs, options);
    }
    Started started(*this, {output, input});
    const int count = static_cast<int>(input.numel());
    check_mpi(MPI_Iallgather(input.data_ptr(), count, moved_type(input), output.data_ptr(), count,
                             moved_type(input), comm_, started.next()),
              "MPI_Iallgather");
    return started.work(c10d::OpType::_ALLGATHER_BASE);
  }

  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& /*options*/) override {
    const Tensors& parts = outputs.at(0);
    const at::Tensor& own = inputs.at(0);
    Started started(*this, parts);
    started.keep(own);
    auto layout = int_layout(sizes_of(parts), most_);
    if (layout && lie_one_behind_the_other(parts)) {
      check_mpi(
          MPI_Iallgatherv(own.data_ptr(), static_cast<int>(own.numel()), moved_type(own),
                          first_filled(parts).data_ptr(), layout->counts.data(),
                          layout->displacements.data(), moved_type(own), comm_, started.next()),
          "MPI_Iallgatherv");
      // MPI reads them until the operation is complete.
      started.keep(std::move(*layout));
      return started.work(c10d::OpType::ALLGATHER);
    }
    for (int shift = 0; shift < size_; ++shift) {
      const int to = (rank_ + shift) % size_;
      const int from = (rank_ + size_ - shift) % size_;
      started.receive(parts[static_cast<std::size_t>(from)], from, kExchangeTag);
      started.send(own, to, kExchangeTag);
    }
    return started.work(c10d::OpType::ALLGATHER);
  }

  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& options) override {
    const Tensors& parts = inputs.at(0);
    const at::Tensor& out = outputs.at(0);
    const at::Tensor in = lie_one_behind_the_other(parts) ? first_filled(parts) : at::cat(parts);
    Started started(*this, parts);
    started.keep(in);
    started.keep(out);
    const MPI_Op op = reduce_op(options.reduceOp);
    auto layout = int_layout(sizes_of(parts), most_);
    // Open MPI adds the counts up, in an int.
    if (layout && in.numel() <= most_) {
      check_mpi(MPI_Ireduce_scatter(in.data_ptr(), out.data_ptr(), layout->counts.data(),
                                    reduced_type(out), op, comm_, started.next()),
                "MPI_Ireduce_scatter");
      started.keep(std::move(*layout));
      return started.work(c10d::OpType::REDUCE_SCATTER);
    }
    std::int64_t begin = 0;
    for (int root = 0; root < size_; ++root) {
      const std::int64_t count = parts[static_cast<std::size_t>(root)].numel();
      for (const auto& piece : cut_into_pieces(count, most_)) {
        void* to = rank_ == root ? element(out, piece.begin) : nullptr;
        check_mpi(MPI_Ireduce(element(in, begin + piece.begin), to, piece.count, reduced_type(out),
                              op, root, comm_, started.next()),
                  "MPI_Ireduce");
      }
      begin += count;
    }
    return started.work(c10d::OpType::REDUCE_SCATTER);
  }

  // Messages rather than MPI_Ialltoallv: a member knows its own counts only, and so could not know if
  // all others' fit into an int too. Open MPI's does the same.
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input,
                        std::vector<std::int64_t>& output_splits,
                        std::vector<std::int64_t>& input_splits,
                        const c10d::AllToAllOptions& /*options*/) override {
    const auto to_parts = split(output, output_splits);
    const auto from_parts = split(input, input_splits);
    Started started(*this, {output, input});
    for (int shift = 0; shift < size_; ++shift) {
      const int from = (rank_ + size_ - shift) % size_;
      started.receive(to_parts[static_cast<std::size_t>(from)], from, kExchangeTag);
    }
    for (int shift = 0; shift < size_; ++shift) {
      const int to = (rank_ + shift) % size_;
      started.send(from_parts[static_cast<std::size_t>(to)], to, kExchangeTag);
    }
    return started.work(c10d::OpType::ALLTOALL_BASE);
  }

  WorkPtr send(Tensors& tensors, int to, int tag) override {
    Started started(*this, tensors);
    started.send(tensors.at(0), to, message_tag(tag));
    return started.work(c10d::OpType::SEND);
  }

  WorkPtr recv(Tensors& tensors, int from, int tag) override {
    Started started(*this, tensors);
    started.receive(tensors.at(0), from, message_tag(tag));
    return started.work(c10d::OpType::RECV);
  }

  WorkPtr barrier(const c10d::BarrierOptions& /*options*/) override {
    Started started(*this, {});
    check_mpi(MPI_Ibarrier(comm_, started.next()), "MPI_Ibarrier");
    return started.work(c10d::OpType::BARRIER);
  }

 private:
  /// The requests of one operation, and what they need.
  class Started {
   public:
    Started(const MpiBackend& backend, Tensors tensors) : backend_(backend) {
      kept_->push_back(std::move(tensors));
    }
    ~Started() {
      // Left over only when one of several could not be started; MPI still uses the others' data.
      if (requests_.requests.empty()) return;
      (void)finish();
    }
    Started(const Started&) = delete;
    Started& operator=(const Started&) = delete;

    template <typename Value>
    void keep(Value value) {
      kept_->push_back(std::move(value));
    }

    [[nodiscard]] MPI_Request* next() { return &requests_.requests.emplace_back(MPI_REQUEST_NULL); }

    void send(const at::Tensor& data, int to, int tag) {
      for (const auto& piece : cut_into_pieces(data.numel(), backend_.most_)) {
        check_mpi(MPI_Isend(element(data, piece.begin), piece.count, moved_type(data), to, tag,
                            backend_.comm_, next()),
                  "MPI_Isend");
      }
    }

    void receive(const at::Tensor& data, int from, int tag) {
      for (const auto& piece : cut_into_pieces(data.numel(), backend_.most_)) {
        check_mpi(MPI_Irecv(element(data, piece.begin), piece.count, moved_type(data), from, tag,
                            backend_.comm_, next()),
                  "MPI_Irecv");
      }
    }

    [[nodiscard]] WorkPtr work(c10d::OpType type) {
      return c10::make_intrusive<MpiWork>(finish(), backend_.rank_, type);
    }

   private:
    std::shared_ptr<MpiOperation> finish() {
      requests_.keep_alive = kept_;
      return backend_.runtime_->add(std::exchange(requests_, {}));
    }

    const MpiBackend& backend_;
    MpiRequests requests_;
    std::shared_ptr<std::vector<std::any>> kept_ = std::make_shared<std::vector<std::any>>();
  };

  [[nodiscard]] static std::vector<std::int64_t> sizes_of(const Tensors& parts) {
    std::vector<std::int64_t> sizes;
    for (const auto& part : parts) sizes.push_back(part.numel());
    return sizes;
  }

  /// The first part with elements, where those of all parts begin; empty ones have no address.
  [[nodiscard]] static const at::Tensor& first_filled(const Tensors& parts) {
    for (const auto& part : parts) {
      if (part.numel() > 0) return part;
    }
    return parts[0];
  }

  [[nodiscard]] static bool lie_one_behind_the_other(const Tensors& parts) {
    const std::byte* next = element(first_filled(parts), 0);
    for (const auto& part : parts) {
      if (part.numel() == 0) continue;
      if (element(part, 0) != next) return false;
      next += part.nbytes();
    }
    return true;
  }

  /// One part per member; equal ones when no sizes are given.
  [[nodiscard]] Tensors split(const at::Tensor& data,
                              const std::vector<std::int64_t>& sizes) const {
    const at::Tensor flat = data.view({-1});
    if (!sizes.empty()) return flat.split_with_sizes(sizes);
    return flat.split_with_sizes(
        std::vector<std::int64_t>(static_cast<std::size_t>(size_), flat.numel() / size_));
  }

  [[nodiscard]] static int message_tag(int tag) { return tag + kExchangeTag + 1; }

  std::shared_ptr<MpiRuntime> runtime_;
  MPI_Comm comm_;
  std::int64_t most_;
};

}  // namespace

c10::intrusive_ptr<c10d::Backend> make_mpi_backend(std::shared_ptr<MpiRuntime> runtime,
                                                   const std::vector<std::int64_t>& ranks,
                                                   std::int64_t member, std::int64_t most) {
  const MPI_Comm comm = runtime->make_comm(ranks);
  return c10::make_intrusive<MpiBackend>(std::move(runtime), comm, static_cast<int>(member),
                                         static_cast<int>(ranks.size()), most);
}

}  // namespace tessera::detail
