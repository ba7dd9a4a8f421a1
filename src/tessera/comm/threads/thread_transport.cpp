#include "tessera/comm/threads/thread_transport.h"

#include <numeric>
#include <string_view>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include "tessera/base/check.h"
#include "tessera/comm/box_copy.h"
#include "tessera/layout/chunk.h"

namespace tessera::detail {
namespace {

using Counts = std::vector<std::int64_t>;

/// Reductions go through their data in blocks that stay in a core's cache from the first
/// contribution to the last.
constexpr std::int64_t kBlockBytes = 128 * 1024;

/// The first element of part `index` when parts of these sizes lie one behind the other.
std::int64_t begin_of(const Counts& counts, std::size_t index) {
  return std::accumulate(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(index),
                         std::int64_t{0});
}

std::int64_t bytes_in(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<std::int64_t>(tensor.nbytes()) : 0;
}

/// The operation of a member, seen by another: all members of a slot have the same type.
template <typename Op>
const Op& as(const ThreadOp* op) {
  return static_cast<const Op&>(*op);
}

class Barrier : public ThreadOp {
 public:
  explicit Barrier(Announced announced) : ThreadOp("barrier", std::move(announced)) {}
  void run(std::span<ThreadOp* const> /*members*/, std::int64_t /*phase*/) override {}
};

/// Lets every member see every member's numbers.
class ShareRecords : public ThreadOp {
 public:
  ShareRecords(Announced announced, std::span<const std::int64_t> record)
      : ThreadOp("", std::move(announced)), record_(record.begin(), record.end()) {}

  void run(std::span<ThreadOp* const> members, std::int64_t /*phase*/) override {
    for (const auto* member : members) {
      const auto& theirs = as<ShareRecords>(member).record_;
      all_.insert(all_.end(), theirs.begin(), theirs.end());
    }
  }
  [[nodiscard]] const Counts& all() const { return all_; }

 private:
  Counts record_;
  Counts all_;
};

/// Every member reduces one chunk of all members' input and puts it into all members' output, so
/// everything is read once and written once; output and input may be the same.
class AllReduce : public ThreadOp {
 public:
  AllReduce(Announced announced, at::Tensor out, at::Tensor in, ReduceOp op, std::size_t own_member)
      : ThreadOp("all_reduce", std::move(announced)),
        out_(std::move(out)),
        in_(std::move(in)),
        op_(op),
        own_member_(own_member) {}

  [[nodiscard]] std::int64_t bytes() const override { return bytes_in(out_); }

  [[nodiscard]] std::string conflict(std::span<ThreadOp* const> members,
                                     std::size_t own_member) const override {
    const auto& first = as<AllReduce>(members.front());
    const bool is_like_first = out_.numel() == first.out_.numel() &&
                               out_.scalar_type() == first.out_.scalar_type() && op_ == first.op_;
    if (is_like_first) return "";
    return concat("in ", call(), " member ", own_member, " reduces ", out_.numel(),
                  " element(s) of ", c10::toString(out_.scalar_type()), " by ", op_, ", member 0 ",
                  first.out_.numel(), " of ", c10::toString(first.out_.scalar_type()), " by ",
                  first.op_);
  }

  void run(std::span<ThreadOp* const> members, std::int64_t /*phase*/) override {
    const auto count = static_cast<std::int64_t>(members.size());
    const Extent own = chunk_extent(out_.numel(), count, static_cast<std::int64_t>(own_member_));
    const std::int64_t most = kBlockBytes / static_cast<std::int64_t>(out_.element_size());
    at::Tensor block = at::empty({std::min(own.size, most)}, out_.options());
    for (std::int64_t begin = own.begin; begin < own.end(); begin += most) {
      const std::int64_t size = std::min(most, own.end() - begin);
      if (size < block.numel()) block = block.narrow(0, 0, size);
      copy_flat(block, 0, as<AllReduce>(members[0]).in_, begin, size);
      for (std::size_t i = 1; i < members.size(); ++i) {
        reduce_flat(block, 0, as<AllReduce>(members[i]).in_, begin, size, op_);
      }
      if (op_ == ReduceOp::avg) divide(block, count);
      for (const auto* member : members) {
        copy_flat(as<AllReduce>(member).out_, begin, block, 0, size);
      }
    }
  }

 private:
  at::Tensor out_;
  at::Tensor in_;
  ReduceOp op_;
  std::size_t own_member_;
};

/// All-gather, gather, scatter, broadcast and all-to-all: parts of the members' inputs are put
/// together to an output. Says for each other member which part of its input is taken.
class Collect : public ThreadOp {
 public:
  struct Data {
    at::Tensor out;
    at::Tensor in;
    /// How much this member takes from each, and gives to each.
    Counts receive_counts;
    Counts send_counts;
    /// Whether all members take the same part of the input, or each its own.
    bool same_for_all = false;
  };

  Collect(const char* name, Announced announced, Data data, std::size_t own_member)
      : ThreadOp(name, std::move(announced)), data_(std::move(data)), own_member_(own_member) {}

  [[nodiscard]] std::int64_t bytes() const override {
    return std::max(bytes_in(data_.out), bytes_in(data_.in));
  }

  [[nodiscard]] std::string conflict(std::span<ThreadOp* const> members,
                                     std::size_t own_member) const override {
    for (std::size_t i = 0; i < members.size(); ++i) {
      const Data& other = as<Collect>(members[i]).data_;
      const std::int64_t offered = other.send_counts[own_member];
      if (offered != data_.receive_counts[i]) {
        return concat("in ", call(), " member ", own_member, " expects ", data_.receive_counts[i],
                      " element(s) from member ", i, ", which sends ", offered);
      }
      if (offered > 0 && other.in.element_size() != data_.out.element_size()) {
        return concat("in ", call(), " member ", own_member, " expects elements of ",
                      data_.out.element_size(), " byte(s) from member ", i,
                      ", which sends some of ", other.in.element_size());
      }
    }
    return "";
  }

  void run(std::span<ThreadOp* const> members, std::int64_t /*phase*/) override {
    std::int64_t to = 0;
    for (std::size_t i = 0; i < members.size(); ++i) {
      const Data& other = as<Collect>(members[i]).data_;
      const std::int64_t from = other.same_for_all ? 0 : begin_of(other.send_counts, own_member_);
      copy_flat(data_.out, to, other.in, from, data_.receive_counts[i]);
      to += data_.receive_counts[i];
    }
  }

 private:
  Data data_;
  std::size_t own_member_;
};

class ReduceScatter : public ThreadOp {
 public:
  ReduceScatter(Announced announced, at::Tensor out, at::Tensor in, Counts counts, ReduceOp op,
                std::size_t own_member)
      : ThreadOp("reduce_scatter_tensor", std::move(announced)),
        out_(std::move(out)),
        in_(std::move(in)),
        counts_(std::move(counts)),
        op_(op),
        own_member_(own_member) {}

  [[nodiscard]] std::int64_t bytes() const override { return bytes_in(in_); }

  [[nodiscard]] std::string conflict(std::span<ThreadOp* const> members,
                                     std::size_t own_member) const override {
    const auto& first = as<ReduceScatter>(members.front());
    const bool is_like_first = counts_ == first.counts_ && op_ == first.op_ &&
                               out_.scalar_type() == first.out_.scalar_type();
    if (is_like_first) return "";
    return concat("in ", call(), " member ", own_member, " reduces ",
                  c10::toString(out_.scalar_type()), " by ", op_, " with sizes (", joined(counts_),
                  "), member 0 ", c10::toString(first.out_.scalar_type()), " by ", first.op_,
                  " with sizes (", joined(first.counts_), ")");
  }

  void run(std::span<ThreadOp* const> members, std::int64_t /*phase*/) override {
    const std::int64_t first = begin_of(counts_, own_member_);
    const std::int64_t count = counts_[own_member_];
    const std::int64_t most = kBlockBytes / static_cast<std::int64_t>(out_.element_size());
    for (std::int64_t begin = 0; begin < count; begin += most) {
      const std::int64_t size = std::min(most, count - begin);
      copy_flat(out_, begin, as<ReduceScatter>(members[0]).in_, first + begin, size);
      for (std::size_t i = 1; i < members.size(); ++i) {
        reduce_flat(out_, begin, as<ReduceScatter>(members[i]).in_, first + begin, size, op_);
      }
    }
    if (op_ == ReduceOp::avg) divide(out_, static_cast<std::int64_t>(members.size()));
  }

 private:
  at::Tensor out_;
  at::Tensor in_;
  Counts counts_;
  ReduceOp op_;
  std::size_t own_member_;
};

/// One side of a message between two ranks; the receiver copies.
class Transfer : public ThreadOp {
 public:
  Transfer(bool is_send, Announced announced, at::Tensor data)
      : ThreadOp(is_send ? "send" : "recv", std::move(announced)),
        data_(std::move(data)),
        is_send_(is_send) {}

  [[nodiscard]] std::string conflict(std::span<ThreadOp* const> members,
                                     std::size_t /*own_member*/) const override {
    const auto& sent = as<Transfer>(members[0]).data_;
    const auto& received = as<Transfer>(members[1]).data_;
    if (sent.scalar_type() == received.scalar_type() && sent.numel() == received.numel()) return "";
    return concat("the sender sends ", sent.numel(), " element(s) of ",
                  c10::toString(sent.scalar_type()), ", the receiver expects ", received.numel(),
                  " of ", c10::toString(received.scalar_type()));
  }

  void run(std::span<ThreadOp* const> members, std::int64_t /*phase*/) override {
    if (!is_send_) copy_flat(data_, 0, as<Transfer>(members[0]).data_, 0, data_.numel());
  }

 private:
  at::Tensor data_;
  bool is_send_;
};

class ThreadPending : public Pending {
 public:
  ThreadPending(std::shared_ptr<ThreadHub> hub, std::shared_ptr<ThreadGroup> group,
                std::shared_ptr<ThreadSlot> slot, std::size_t member,
                std::chrono::milliseconds timeout)
      : hub_(std::move(hub)),
        group_(std::move(group)),
        slot_(std::move(slot)),
        member_(member),
        timeout_(timeout) {}

  void wait() override { hub_->wait(*group_, slot_, member_, timeout_); }
  bool is_done() override { return hub_->is_done(*slot_); }

 private:
  std::shared_ptr<ThreadHub> hub_;
  std::shared_ptr<ThreadGroup> group_;
  std::shared_ptr<ThreadSlot> slot_;
  std::size_t member_;
  std::chrono::milliseconds timeout_;
};

Counts to_counts(std::span<const std::int64_t> counts) { return {counts.begin(), counts.end()}; }

}  // namespace

void ThreadTransport::check(const Fingerprint& fingerprint) {
  announced_ = {fingerprint.op, fingerprint.arguments, take_claims(fingerprint)};
}

std::vector<std::int64_t> ThreadTransport::check_records(const Fingerprint& fingerprint,
                                                         std::span<const std::int64_t> record) {
  const auto op = std::make_shared<ShareRecords>(
      ThreadOp::Announced{fingerprint.op, fingerprint.arguments, take_claims(fingerprint)}, record);
  post(op)->wait();
  return op->all();
}

ThreadOp::Announced ThreadTransport::take_announced() {
  auto announced = std::exchange(announced_, {});
  // A list is one message per dtype, all of which go by its name.
  if (std::string_view(announced.name).ends_with("_coalesced")) announced_.name = announced.name;
  return announced;
}

PendingPtr ThreadTransport::post(std::shared_ptr<ThreadOp> op) {
  auto slot = hub_->post(*group_, next_number_++, member_, std::move(op));
  return std::make_shared<ThreadPending>(hub_, group_, std::move(slot), member_, timeout_);
}

PendingPtr ThreadTransport::post_pair(const ThreadHub::Route& route, std::size_t member,
                                      std::shared_ptr<ThreadOp> op) {
  auto slot = hub_->post_pair(*group_, route, member, std::move(op));
  return std::make_shared<ThreadPending>(hub_, group_, std::move(slot), member, timeout_);
}

PendingPtr ThreadTransport::all_reduce(const at::Tensor& data, ReduceOp op) {
  return post(std::make_shared<AllReduce>(take_announced(), data, data, op, member_));
}

PendingPtr ThreadTransport::all_reduce_into(const at::Tensor& out, const at::Tensor& in,
                                            ReduceOp op) {
  return post(std::make_shared<AllReduce>(take_announced(), out, in, op, member_));
}

PendingPtr ThreadTransport::all_gather(const at::Tensor& out, const at::Tensor& in,
                                       std::span<const std::int64_t> counts) {
  const Counts send_counts(group_->ranks.size(), in.numel());
  return post(std::make_shared<Collect>(
      "all_gather_into_tensor", take_announced(),
      Collect::Data{out, in, to_counts(counts), send_counts, /*same_for_all=*/true}, member_));
}

PendingPtr ThreadTransport::reduce_scatter(const at::Tensor& out, const at::Tensor& in,
                                           std::span<const std::int64_t> counts, ReduceOp op) {
  return post(
      std::make_shared<ReduceScatter>(take_announced(), out, in, to_counts(counts), op, member_));
}

PendingPtr ThreadTransport::all_to_all(const at::Tensor& out, const at::Tensor& in,
                                       std::span<const std::int64_t> receive_counts,
                                       std::span<const std::int64_t> send_counts) {
  return post(std::make_shared<Collect>(
      "all_to_all_single", take_announced(),
      Collect::Data{out, in, to_counts(receive_counts), to_counts(send_counts)}, member_));
}

PendingPtr ThreadTransport::broadcast(const at::Tensor& data, std::int64_t root) {
  const bool is_root = static_cast<std::int64_t>(member_) == root;
  Counts receive_counts(group_->ranks.size(), 0);
  Counts send_counts(group_->ranks.size(), is_root ? data.numel() : 0);
  if (is_root) send_counts[member_] = 0;
  if (!is_root) receive_counts[static_cast<std::size_t>(root)] = data.numel();
  return post(std::make_shared<Collect>(
      "broadcast", take_announced(),
      Collect::Data{data, data, std::move(receive_counts), std::move(send_counts), true}, member_));
}

PendingPtr ThreadTransport::gather(const at::Tensor& out, const at::Tensor& in,
                                   std::span<const std::int64_t> counts, std::int64_t root) {
  const bool is_root = static_cast<std::int64_t>(member_) == root;
  Counts send_counts(group_->ranks.size(), 0);
  send_counts[static_cast<std::size_t>(root)] = in.numel();
  Counts receive_counts = is_root ? to_counts(counts) : Counts(group_->ranks.size(), 0);
  return post(std::make_shared<Collect>(
      "gather", take_announced(),
      Collect::Data{out, in, std::move(receive_counts), std::move(send_counts), true}, member_));
}

PendingPtr ThreadTransport::scatter(const at::Tensor& out, const at::Tensor& in,
                                    std::span<const std::int64_t> counts, std::int64_t root) {
  const bool is_root = static_cast<std::int64_t>(member_) == root;
  Counts receive_counts(group_->ranks.size(), 0);
  receive_counts[static_cast<std::size_t>(root)] = out.numel();
  Counts send_counts = is_root ? to_counts(counts) : Counts(group_->ranks.size(), 0);
  return post(std::make_shared<Collect>(
      "scatter", take_announced(),
      Collect::Data{out, in, std::move(receive_counts), std::move(send_counts)}, member_));
}

PendingPtr ThreadTransport::send(const at::Tensor& data, std::int64_t to, std::int64_t tag) {
  const auto receiver = group_->ranks[static_cast<std::size_t>(to)];
  return post_pair({group_->ranks[member_], receiver, tag}, 0,
                   std::make_shared<Transfer>(true, take_announced(), data));
}

PendingPtr ThreadTransport::receive(const at::Tensor& data, std::int64_t from, std::int64_t tag) {
  const auto sender = group_->ranks[static_cast<std::size_t>(from)];
  return post_pair({sender, group_->ranks[member_], tag}, 1,
                   std::make_shared<Transfer>(false, take_announced(), data));
}

void ThreadTransport::barrier() { post(std::make_shared<Barrier>(take_announced()))->wait(); }

}  // namespace tessera::detail
