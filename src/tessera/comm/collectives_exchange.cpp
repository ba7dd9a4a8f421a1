
#include <ATen/ops/scalar_tensor.h>

#include "tessera/comm/collectives.h"
#include "tessera/comm/collectives_autograd.h"

// All-to-all, permute and broadcast.

namespace tessera {
namespace {

using detail::at_index;
using detail::Call;
using detail::IssuedPtr;
using detail::Sizes;
using detail::sum;
using detail::Tensors;

class AllToAll final : public detail::Collective {
 public:
  AllToAll(const Group& group, Sizes receive_splits, Sizes send_splits, bool moves)
      : group_(group),
        receive_splits_(std::move(receive_splits)),
        send_splits_(std::move(send_splits)),
        moves_(moves) {}

  [[nodiscard]] IssuedPtr issue(const Call& call, const Tensors& inputs) const override {
    return detail::issue_all_to_all(call, inputs.front(), receive_splits_, send_splits_, moves_);
  }

  [[nodiscard]] Tensors backward(const Tensors& gradients, const Tensors& /*inputs*/,
                                 const Tensors& /*outputs*/) const override {
    return {all_to_all(gradients.front(), send_splits_, receive_splits_, group_)};
  }

 private:
  Group group_;
  Sizes receive_splits_;
  Sizes send_splits_;
  bool moves_;
};

class Permute final : public detail::Collective {
 public:
  Permute(const Group& group, Sizes destinations)
      : group_(group), destinations_(std::move(destinations)) {}

  [[nodiscard]] IssuedPtr issue(const Call& call, const Tensors& inputs) const override {
    return detail::issue_permute(call, inputs.front(), destinations_);
  }

  [[nodiscard]] Tensors backward(const Tensors& gradients, const Tensors& /*inputs*/,
                                 const Tensors& /*outputs*/) const override {
    Sizes inverse(destinations_.size(), -1);
    for (std::size_t i = 0; i < destinations_.size(); ++i) {
      if (destinations_[i] >= 0) inverse[at_index(destinations_[i])] = static_cast<std::int64_t>(i);
    }
    return {permute(gradients.front(), inverse, group_)};
  }

 private:
  Group group_;
  Sizes destinations_;
};

class Broadcast final : public detail::Collective {
 public:
  Broadcast(const Group& group, std::int64_t root) : group_(group), root_(root) {}

  [[nodiscard]] IssuedPtr issue(const Call& call, const Tensors& inputs) const override {
    return detail::issue_broadcast(call, inputs.front(), root_);
  }

  [[nodiscard]] Tensors backward(const Tensors& gradients, const Tensors& /*inputs*/,
                                 const Tensors& /*outputs*/) const override {
    const at::Tensor total = all_reduce(gradients.front(), ReduceOp::sum, group_);
    if (group_.index() == root_) return {total};
    // A zero with history: when this is differentiated, all members must take part.
    const at::Tensor everywhere = at::scalar_tensor(true, total.options().dtype(at::kBool));
    return {total.masked_fill(everywhere, 0)};
  }

 private:
  Group group_;
  std::int64_t root_;
};

/// Checks the splits of `all_to_all`, and fills in those that are left out.
struct Splits {
  Sizes receive;
  Sizes send;
  bool moves = true;

  /// Evenly, the same on all members.
  void cut_evenly(Call& call, const at::Tensor& x) {
    const std::int64_t whole = call.is_valid() ? x.size(0) : 0;
    call.require(whole % call.size() == 0, "x has ", whole,
                 " along dim 0, which is not a multiple ", "of the ", call.size(),
                 " members; give send_splits");
    moves = call.is_valid() && x.numel() > 0;
    call.agree([&] { return detail::describe(x) + " cut evenly"; }, moves);
    send.assign(at_index(call.size()), whole / call.size());
    receive = send;
  }

  void fit(Call& call, const at::Tensor& x) {
    const bool is_told = receive.empty();
    const std::int64_t n = call.size();
    if (call.is_valid()) detail::require_total(call, x, 0, send, "send_splits");
    if (call.is_valid() && !is_told) detail::require_sizes(call, receive, "receive_splits");
    if (call.is_valid() && !is_told && call.is_alone()) {
      call.require(receive == send, "receive_splits ", detail::bracketed(receive),
                   " given in a group of one, which sends itself ", detail::bracketed(send));
    }
    if (call.is_valid()) moves = c10::multiply_integers(x.sizes().slice(1)) > 0;
    if (call.is_valid() && !is_told && !call.is_compared() && !call.is_alone()) return;
    Sizes record = send;
    record.insert(record.end(), receive.begin(), receive.end());
    const auto all =
        call.share([&] { return detail::describe(x, 0) + (is_told ? " to be told" : ""); }, record,
                   is_told ? n : 2 * n);
    take(call, x, all, is_told);
  }

 private:
  /// `all` are the members' send splits, each followed by its receive splits unless those are told.
  void take(Call& call, const at::Tensor& x, const Sizes& all, bool is_told) {
    const auto n = at_index(call.size());
    const std::size_t length = is_told ? n : 2 * n;
    moves = moves && sum(all) > 0;
    for (std::size_t to = 0; to < n; ++to) {
      for (std::size_t from = 0; from < n; ++from) {
        const std::int64_t sent = all[from * length + to];
        if (is_told) {
          if (at_index(call.index()) == to) receive.push_back(sent);
        } else if (all[to * length + n + from] != sent) {
          const auto& ranks = call.group().ranks();
          call.disagree(concat("rank ", ranks[from], " sends ", sent, " row(s) to rank ", ranks[to],
                               ", which expects ", all[to * length + n + from]),
                        concat(detail::describe(x, 0), " send_splits ", detail::bracketed(send),
                               " receive_splits ", detail::bracketed(receive)));
        }
      }
    }
  }
};

bool require_permutation(Call& call, const Sizes& destinations) {
  if (!call.require(static_cast<std::int64_t>(destinations.size()) == call.size(),
                    destinations.size(), " destinations given for group ", call.group().name(),
                    " of ", call.size(), " member(s); give one per member")) {
    return false;
  }
  std::vector<bool> taken(destinations.size(), false);
  for (const auto destination : destinations) {
    if (destination == -1) continue;
    if (!detail::require_member(call, destination, "destination")) return false;
    if (!call.require(!taken[at_index(destination)], "member ", destination,
                      " given as destination twice; a member can receive from one other only")) {
      return false;
    }
    taken[at_index(destination)] = true;
  }
  return true;
}

at::Tensor permute_call(Call& call, const at::Tensor& x, const Sizes& destinations, bool async_op) {
  if (call.is_valid() && detail::require_tensor(call, x)) require_permutation(call, destinations);
  call.agree([&] { return detail::describe(x) + " to " + detail::bracketed(destinations); },
             call.is_valid() && x.numel() > 0);
  return detail::perform(call, c10::make_intrusive<Permute>(call.group(), destinations), x,
                         async_op);
}

}  // namespace

at::Tensor all_to_all(const at::Tensor& x, const std::vector<std::int64_t>& receive_splits,
                      const std::vector<std::int64_t>& send_splits, const Group& group,
                      const CollectiveOptions& options) {
  Call call("all_to_all", "all_to_all_single", group);
  if (detail::require_tensor(call, x)) {
    call.require(x.dim() > 0, "a tensor without dims given; it is cut along dim 0");
    call.require(receive_splits.empty() || !send_splits.empty(),
                 "receive_splits given without send_splits; give both, or send_splits alone");
  }
  Splits splits{receive_splits, send_splits};
  if (send_splits.empty()) {
    splits.cut_evenly(call, x);
  } else {
    splits.fit(call, x);
  }
  return detail::perform(
      call, c10::make_intrusive<AllToAll>(group, splits.receive, splits.send, splits.moves), x,
      options.async_op);
}

at::Tensor permute(const at::Tensor& x, const std::vector<std::int64_t>& destinations,
                   const Group& group, const CollectiveOptions& options) {
  Call call("permute", "all_to_all_single", group);
  return permute_call(call, x, destinations, options.async_op);
}

at::Tensor permute(const at::Tensor& x,
                   const std::vector<std::pair<std::int64_t, std::int64_t>>& pairs,
                   const Group& group, const CollectiveOptions& options) {
  Call call("permute", "all_to_all_single", group);
  Sizes destinations(at_index(group.size()), -1);
  for (const auto& [source, destination] : pairs) {
    if (!detail::require_member(call, source, "source")) break;
    if (!detail::require_member(call, destination, "destination")) break;
    auto& own = destinations[at_index(source)];
    if (!call.require(own == -1, "member ", source,
                      " given as source twice; a member can send to one other only")) {
      break;
    }
    own = destination;
  }
  return permute_call(call, x, destinations, options.async_op);
}

at::Tensor permute(const at::Tensor& x,
                   std::initializer_list<std::pair<std::int64_t, std::int64_t>> pairs,
                   const Group& group, const CollectiveOptions& options) {
  return permute(x, std::vector<std::pair<std::int64_t, std::int64_t>>(pairs), group, options);
}

at::Tensor broadcast(const at::Tensor& x, std::int64_t root, const Group& group,
                     const CollectiveOptions& options) {
  Call call("broadcast", "broadcast", group);
  if (detail::require_tensor(call, x)) detail::require_member(call, root, "root");
  call.agree([&] { return detail::describe(x) + " root " + std::to_string(root); },
             call.is_valid() && x.numel() > 0);
  return detail::perform(call, c10::make_intrusive<Broadcast>(group, root), x, options.async_op);
}

}  // namespace tessera
