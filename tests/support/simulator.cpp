#include "support/simulator.h"

#include <algorithm>
#include <utility>

#include "tessera/base/check.h"

namespace tessera::test {
namespace {

// A value that no test computes: seen in an output, it was never written.
constexpr std::int64_t kUnwritten = 0x5eed'0000'dead'beef;

bool is_active_partial(const Layout& layout, std::size_t mesh_dim) {
  return is_partial(layout.placements()[mesh_dim]) && layout.mesh().sizes()[mesh_dim] > 1;
}

/// Numbers the contribution that a rank holds, counting through the Partial mesh dims.
std::int64_t contribution_number(const Layout& layout, const Coordinate& coordinate) {
  std::int64_t number = 0;
  for (std::size_t i = 0; i < coordinate.size(); ++i) {
    if (is_active_partial(layout, i)) number = number * layout.mesh().sizes()[i] + coordinate[i];
  }
  return number;
}

std::int64_t contribution_count(const Layout& layout) {
  std::int64_t count = 1;
  for (std::size_t i = 0; i < layout.placements().size(); ++i) {
    if (is_active_partial(layout, i)) count *= layout.mesh().sizes()[i];
  }
  return count;
}

/// What the sum of all contributions must be divided by.
std::int64_t averaged_count(const Layout& layout) {
  std::int64_t count = 1;
  for (std::size_t i = 0; i < layout.placements().size(); ++i) {
    if (layout.placements()[i] == Placement(Partial(ReduceOp::avg))) {
      count *= layout.mesh().sizes()[i];
    }
  }
  return count;
}

std::int64_t random_contribution(Random& random, ReduceOp op) {
  // Small enough that products of many stay exact; a multiple of every mesh size for averages.
  if (op == ReduceOp::product) return random.one_in(6) ? 2 : (random.one_in(2) ? 1 : -1);
  return random.between(-999, 999) * 3600;
}

/// The messages of one step on their way, by sender and receiver.
class Mailbox {
 public:
  void send(std::int64_t from, std::int64_t to, std::vector<std::int64_t> packed) {
    const bool added = messages_.emplace(std::pair(from, to), std::move(packed)).second;
    TESSERA_INTERNAL_CHECK(added, "rank ", from, " sends to ", to, " twice in a round");
  }
  std::vector<std::int64_t> receive(std::int64_t from, std::int64_t to) {
    auto found = messages_.extract(std::pair(from, to));
    TESSERA_INTERNAL_CHECK(!found.empty(), "rank ", to, " waits for ", from,
                           ", which sends nothing");
    return std::move(found.mapped());
  }
  [[nodiscard]] bool empty() const { return messages_.empty(); }

 private:
  std::map<std::pair<std::int64_t, std::int64_t>, std::vector<std::int64_t>> messages_;
};

template <typename Visit>
void for_each_in_piece(const Shape& shape, const RankStep::Piece& piece, Visit visit) {
  for (std::size_t i = 0; i < piece.box_count; ++i) {
    for_each_in_box(shape, std::span(piece.extents).subspan(i * shape.size(), shape.size()), visit);
  }
}

void post_sends(const RankStep& own, std::int64_t rank, std::int64_t round, const LocalArray& in,
                Mailbox& mailbox) {
  for (const auto& message : own.sends) {
    const auto piece = own.piece(message, round);
    std::vector<std::int64_t> packed;
    for_each_in_piece(in.shape, piece, [&](std::size_t at) { packed.push_back(in.data[at]); });
    TESSERA_INTERNAL_CHECK(static_cast<std::int64_t>(packed.size()) == piece.numel, "a piece says ",
                           piece.numel, " elements and has ", packed.size());
    mailbox.send(rank, message.peer, std::move(packed));
  }
}

void take_receives(const RankStep& own, std::int64_t rank, std::int64_t round, LocalArray& out,
                   Mailbox& mailbox) {
  for (const auto& message : own.receives) {
    const auto packed = mailbox.receive(message.peer, rank);
    const auto piece = own.piece(message, round);
    TESSERA_INTERNAL_CHECK(static_cast<std::int64_t>(packed.size()) == piece.numel, "rank ", rank,
                           " expects ", piece.numel, " elements from ", message.peer,
                           ", which sends ", packed.size());
    std::size_t next = 0;
    for_each_in_piece(out.shape, piece, [&](std::size_t at) {
      const std::int64_t value = packed[next++];
      out.data[at] = message.accumulate ? reduce(*own.reduce, out.data[at], value) : value;
    });
  }
}

Locals simulate_messages(const Step& step, const Locals& locals) {
  std::map<std::int64_t, RankStep> parts;
  Locals result;
  for (const auto* layout : {&step.from, &step.to}) {
    for (const auto rank : layout->mesh().ranks()) parts.emplace(rank, rank_step(step, rank));
  }
  for (const auto rank : step.to.mesh().ranks()) {
    const RankStep& own = parts.at(rank);
    const auto fill = own.fill_identity;
    result.emplace(rank, LocalArray(own.out_shape, fill ? identity_of(*fill) : kUnwritten));
  }
  for (std::int64_t round = 0; round < step.rounds; ++round) {
    Mailbox mailbox;
    for (const auto& [rank, own] : parts) {
      if (locals.contains(rank)) post_sends(own, rank, round, locals.at(rank), mailbox);
    }
    for (const auto& [rank, own] : parts) {
      if (result.contains(rank)) take_receives(own, rank, round, result.at(rank), mailbox);
    }
    TESSERA_INTERNAL_CHECK(mailbox.empty(), "a message was sent and never received");
  }
  for (auto& [rank, out] : result) {
    for (auto& value : out.data) value /= parts.at(rank).divisor;
  }
  return result;
}

/// Copies `size` indices of dim `dim` between arrays that agree in all other dims.
void copy_along(const LocalArray& in, std::int64_t in_begin, LocalArray& out,
                std::int64_t out_begin, std::int64_t size, std::size_t dim) {
  std::vector<Extent> from;
  std::vector<Extent> to;
  for (std::size_t d = 0; d < in.shape.size(); ++d) {
    from.push_back(d == dim ? Extent{in_begin, size} : Extent{0, in.shape[d]});
    to.push_back(d == dim ? Extent{out_begin, size} : Extent{0, out.shape[d]});
  }
  std::vector<std::int64_t> packed;
  for_each_in_box(in.shape, from, [&](std::size_t at) { packed.push_back(in.data[at]); });
  std::size_t next = 0;
  for_each_in_box(out.shape, to, [&](std::size_t at) { out.data[at] = packed.at(next++); });
}

LocalArray concatenated(const std::vector<LocalArray>& parts, std::size_t dim) {
  Shape shape = parts.front().shape;
  shape[dim] = 0;
  for (const auto& part : parts) shape[dim] += part.shape[dim];
  LocalArray whole(shape, kUnwritten);
  std::int64_t begin = 0;
  for (const auto& part : parts) {
    copy_along(part, 0, whole, begin, part.shape[dim], dim);
    begin += part.shape[dim];
  }
  return whole;
}

/// Returns the shard of `whole` along `dim` that member `index` gets, the members' sizes given.
LocalArray shard_of(const LocalArray& whole, const std::vector<std::int64_t>& sizes,
                    std::size_t index, std::size_t dim) {
  Shape shape = whole.shape;
  shape[dim] = sizes[index];
  LocalArray shard(shape, kUnwritten);
  const std::int64_t begin = std::accumulate(
      sizes.begin(), sizes.begin() + static_cast<std::ptrdiff_t>(index), std::int64_t{0});
  copy_along(whole, begin, shard, 0, sizes[index], dim);
  return shard;
}

/// The op of the mesh dims that a step reduces, and what the result must be divided by.
std::pair<ReduceOp, std::int64_t> reduction_of(const Step& step) {
  std::int64_t divisor = 1;
  ReduceOp op = ReduceOp::sum;
  for (const auto dim : step.mesh_dims) {
    op = std::get<Partial>(step.from.placements()[static_cast<std::size_t>(dim)]).op;
    if (op == ReduceOp::avg) divisor *= step.from.mesh().size(dim);
  }
  return {divisor > 1 ? ReduceOp::sum : op, divisor};
}

LocalArray reduced(const std::vector<LocalArray>& parts, const Step& step) {
  const auto [op, divisor] = reduction_of(step);
  LocalArray whole = parts.front();
  for (std::size_t i = 1; i < parts.size(); ++i) {
    TESSERA_INTERNAL_CHECK(parts[i].shape == whole.shape, "contributions of different shapes");
    for (std::size_t at = 0; at < whole.data.size(); ++at) {
      whole.data[at] = reduce(op, whole.data[at], parts[i].data[at]);
    }
  }
  for (auto& value : whole.data) value /= divisor;
  return whole;
}

/// One rank's result of a native collective, computed from the local tensors of its whole group.
LocalArray collective_result(const Step& step, std::int64_t rank, const Locals& locals) {
  const auto group = step_group(step, rank);
  const auto index =
      static_cast<std::size_t>(std::find(group.begin(), group.end(), rank) - group.begin());
  const auto& split_dim = step.to.placements()[static_cast<std::size_t>(step.mesh_dims.front())];
  const auto* shard = std::get_if<Shard>(&split_dim);
  const auto scatter_dim = static_cast<std::size_t>(shard != nullptr ? shard->dim : 0);
  std::vector<LocalArray> parts;
  std::vector<std::int64_t> sizes;
  for (const auto member : group) {
    parts.push_back(locals.at(member));
    if (shard == nullptr) continue;
    const std::int64_t position = *step.to.mesh().position_of(member);
    sizes.push_back(step.to.local_size(shard->dim, position));
  }
  const auto gather_dim = static_cast<std::size_t>(std::max<std::int64_t>(step.tensor_dim, 0));
  switch (step.kind) {
    case StepKind::all_gather:
      return concatenated(parts, gather_dim);
    case StepKind::all_reduce:
      return reduced(parts, step);
    case StepKind::reduce_scatter:
      return shard_of(reduced(parts, step), sizes, index, scatter_dim);
    default:
      for (auto& part : parts) part = shard_of(part, sizes, index, scatter_dim);
      return concatenated(parts, gather_dim);
  }
}

}  // namespace

DistributedTensor random_tensor(Random& random, const Layout& layout) {
  DistributedTensor tensor;
  const auto numel = static_cast<std::size_t>(layout.numel());
  const ReduceOp op = layout.reduce_op().value_or(ReduceOp::sum);
  std::vector<std::vector<std::int64_t>> contributions;
  for (std::int64_t i = 0; i < contribution_count(layout); ++i) {
    std::vector<std::int64_t> values(numel);
    for (auto& value : values) value = random_contribution(random, op);
    contributions.push_back(std::move(values));
  }
  tensor.value = contributions.front();
  for (std::size_t at = 0; at < numel; ++at) {
    for (std::size_t i = 1; i < contributions.size(); ++i) {
      tensor.value[at] = reduce(op, tensor.value[at], contributions[i][at]);
    }
    tensor.value[at] /= averaged_count(layout);
  }
  for (const auto rank : layout.mesh().ranks()) {
    const Coordinate coordinate = *layout.mesh().coordinate_of(rank);
    const auto& held =
        contributions[static_cast<std::size_t>(contribution_number(layout, coordinate))];
    const Part part = layout.part_at(coordinate);
    LocalArray local(part.shape());
    std::size_t next = 0;
    for_each_in_part(layout.shape(), part, [&](std::size_t at) { local.data[next++] = held[at]; });
    tensor.locals.emplace(rank, std::move(local));
  }
  return tensor;
}

Locals simulate(const std::vector<Step>& steps, Locals locals) {
  for (const auto& step : steps) {
    const bool native = step.kind != StepKind::exchange && !step.is_local();
    if (!native) {
      locals = simulate_messages(step, locals);
      continue;
    }
    Locals result;
    for (const auto& [rank, local] : locals)
      result.emplace(rank, collective_result(step, rank, locals));
    locals = std::move(result);
  }
  return locals;
}

std::string find_fault(const Layout& layout, const Locals& locals,
                       const std::vector<std::int64_t>& value) {
  const auto count = static_cast<std::size_t>(contribution_count(layout));
  // contributions[i][e]: what the holders of contribution i say about element e.
  std::vector<std::map<std::size_t, std::int64_t>> contributions(count);
  for (const auto rank : layout.mesh().ranks()) {
    if (!locals.contains(rank)) return concat("rank ", rank, " has no local tensor");
    const LocalArray& local = locals.at(rank);
    const Coordinate coordinate = *layout.mesh().coordinate_of(rank);
    const Part part = layout.part_at(coordinate);
    if (local.shape != part.shape()) {
      return concat("rank ", rank, " has shape [", joined(local.shape), "], not ", part);
    }
    auto& said = contributions[static_cast<std::size_t>(contribution_number(layout, coordinate))];
    std::size_t next = 0;
    std::string fault;
    for_each_in_part(layout.shape(), part, [&](std::size_t at) {
      const std::int64_t own = local.data[next++];
      if (said.emplace(at, own).first->second == own) return;
      fault = concat("rank ", rank, " differs from its replicas in element ", at);
    });
    if (!fault.empty()) return fault;
  }
  const ReduceOp op = layout.reduce_op().value_or(ReduceOp::sum);
  for (std::size_t at = 0; at < value.size(); ++at) {
    std::int64_t total = identity_of(op);
    for (const auto& said : contributions) {
      const auto found = said.find(at);
      if (found == said.end()) return concat("nobody holds element ", at);
      total = reduce(op, total, found->second);
    }
    total /= averaged_count(layout);
    if (total != value[at]) {
      return concat("element ", at, " is ", total, " and should be ", value[at]);
    }
  }
  return "";
}

}  // namespace tessera::test
