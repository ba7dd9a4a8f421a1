#include "tessera/plan/path_search.h"

#include <algorithm>
#include <bit>
#include <queue>
#include <unordered_map>

#include "tessera/plan/placement_state.h"

namespace tessera::detail {
namespace {

/// Keeps a search on a large mesh from running away; three mesh dims stay below.
constexpr std::size_t kMostStates = 512;

using MeshDims = std::vector<std::int64_t>;

/// One collective, slice or fill: an edge of the search.
struct Edge {
  PlacementState next;
  StepKind kind;
  MeshDims mesh_dims;
  std::int64_t tensor_dim = -1;
};

/// Lists what can be done to a state.
class Moves {
 public:
  explicit Moves(const StateSpace& space) : space_(space) {}

  std::vector<Edge> from(const PlacementState& state) {
    edges_.clear();
    state_ = &state;
    pending_.clear();
    for (std::size_t i = 0; i < space_.mesh_ndim(); ++i) {
      if (state.code[i] == PlacementState::kPending)
        pending_.push_back(static_cast<std::int64_t>(i));
    }
    for (std::size_t i = 0; i < space_.mesh_ndim(); ++i) add_local(i);
    for (std::size_t dim = 0; dim < space_.tensor_ndim(); ++dim) add_gathers(dim);
    for (const auto mesh_dim : pending_) add_reductions({mesh_dim});
    if (pending_.size() > 1) add_reductions(pending_);
    return std::move(edges_);
  }

 private:
  /// Returns the state with mesh dims cutting `tensor_dim` behind the cuts that are there.
  [[nodiscard]] PlacementState appended(const MeshDims& mesh_dims, std::size_t tensor_dim) const {
    PlacementState next = *state_;
    std::int8_t place = space_.depth(*state_, tensor_dim);
    for (const auto mesh_dim : mesh_dims) {
      next.code[static_cast<std::size_t>(mesh_dim)] = static_cast<std::int8_t>(tensor_dim);
      next.place[static_cast<std::size_t>(mesh_dim)] = place++;
    }
    return next;
  }

  [[nodiscard]] PlacementState with_code(const MeshDims& mesh_dims, std::int8_t code) const {
    PlacementState next = *state_;
    for (const auto mesh_dim : mesh_dims) {
      next.code[static_cast<std::size_t>(mesh_dim)] = code;
      next.place[static_cast<std::size_t>(mesh_dim)] = 0;
    }
    return next;
  }

  void add_local(std::size_t mesh_dim) {
    if (state_->code[mesh_dim] != PlacementState::kReplicate) return;
    const std::int8_t wanted = space_.target().code[mesh_dim];
    const MeshDims dims{static_cast<std::int64_t>(mesh_dim)};
    if (wanted >= 0) {
      edges_.push_back(
          {appended(dims, static_cast<std::size_t>(wanted)), StepKind::slice, {}, wanted});
    }
    if (wanted == PlacementState::kFilled) add_fill(dims);
  }

  void add_fill(const MeshDims& dims) {
    // Contributions of two different reductions at once would have no meaning.
    if (pending_.empty()) {
      edges_.push_back({with_code(dims, PlacementState::kFilled), StepKind::fill, {}, -1});
    }
  }

  /// Undoes the last cuts of a tensor dim: one, or several at once.
  void add_gathers(std::size_t dim) {
    MeshDims dims;
    for (std::int8_t place = space_.depth(*state_, dim); place-- > 0;) {
      const auto mesh_dim = space_.cut_at(*state_, dim, place);
      if (!mesh_dim) return;
      dims.insert(dims.begin(), static_cast<std::int64_t>(*mesh_dim));
      const auto tensor_dim = static_cast<std::int64_t>(dim);
      edges_.push_back(
          {with_code(dims, PlacementState::kReplicate), StepKind::all_gather, dims, tensor_dim});
      if (dims.size() == 1) add_moves_of_last_cut(*mesh_dim, dim);
    }
  }

  void add_moves_of_last_cut(std::size_t mesh_dim, std::size_t dim) {
    const MeshDims dims{static_cast<std::int64_t>(mesh_dim)};
    for (std::size_t other = 0; other < space_.tensor_ndim(); ++other) {
      if (other == dim || !space_.is_useful(other)) continue;
      edges_.push_back(
          {appended(dims, other), StepKind::all_to_all, dims, static_cast<std::int64_t>(dim)});
    }
    if (space_.target().code[mesh_dim] == PlacementState::kFilled &&
        space_.filled_op(mesh_dim) != ReduceOp::avg) {
      add_fill(dims);
    }
  }

  void add_reductions(const MeshDims& dims) {
    edges_.push_back({with_code(dims, PlacementState::kReplicate), StepKind::all_reduce, dims, -1});
    for (std::size_t dim = 0; dim < space_.tensor_ndim(); ++dim) {
      if (!space_.is_useful(dim)) continue;
      edges_.push_back(
          {appended(dims, dim), StepKind::reduce_scatter, dims, static_cast<std::int64_t>(dim)});
    }
  }

  const StateSpace& space_;
  const PlacementState* state_ = nullptr;
  MeshDims pending_;
  std::vector<Edge> edges_;
};

/// What the first and the last rank hold in a state: the largest and the smallest part.
struct Holdings {
  Sizes first;
  Sizes last;
  std::int64_t most;
  std::int64_t least;

  Holdings(const StateSpace& space, const PlacementState& state)
      : first(space.local_sizes(state, false)),
        last(space.local_sizes(state, true)),
        most(space.numel(first)),
        least(space.numel(last)) {}
};

std::int64_t group_size(const StateSpace& space, const MeshDims& dims) {
  std::int64_t size = 1;
  for (const auto dim : dims) size *= space.mesh_size(static_cast<std::size_t>(dim));
  return size;
}

std::int64_t log2_ceil(std::int64_t n) {
  return static_cast<std::int64_t>(std::bit_width(static_cast<std::uint64_t>(n - 1)));
}

/// Prices one edge in elements: the most that any rank moves, by a bandwidth-optimal algorithm.
class EdgeCost {
 public:
  explicit EdgeCost(const StateSpace& space) : space_(space) {}

  [[nodiscard]] Traffic traffic(const Edge& edge, const Holdings& in, const Holdings& out) const {
    const std::int64_t n = group_size(space_, edge.mesh_dims);
    switch (edge.kind) {
      case StepKind::slice:
      case StepKind::fill:
        return {0, 0, out.most, 0};
      case StepKind::all_gather: {
        const std::int64_t moved = std::max(out.most - in.most, out.least - in.least);
        return {moved, moved, is_outermost(edge.tensor_dim, out) ? 0 : out.most, log2_ceil(n)};
      }
      case StepKind::reduce_scatter: {
        const std::int64_t moved = (n - 1) * out.most;
        return {moved, moved, is_outermost(edge.tensor_dim, in) ? 0 : in.most, log2_ceil(n)};
      }
      case StepKind::all_reduce: {
        const std::int64_t moved = 2 * (in.most - in.most / n);
        return {moved, moved, 0, 2 * log2_ceil(n)};
      }
      case StepKind::all_to_all: {
        const std::int64_t stays = shared_by_all_to_all(edge, in.first, out.first);
        const std::int64_t received =
            std::max(out.most - stays, out.least - shared_by_all_to_all(edge, in.last, out.last));
        const std::int64_t sent = in.most - stays;
        const auto new_dim = edge.next.code[static_cast<std::size_t>(edge.mesh_dims.front())];
        const std::int64_t packed = (is_outermost(edge.tensor_dim, out) ? 0 : received) +
                                    (is_outermost(new_dim, in) ? 0 : sent);
        // Where messages are so small that their number counts, engines send them in log2 rounds.
        return {received, sent, packed, log2_ceil(n)};
      }
      case StepKind::exchange:
        break;
    }
    return {};
  }

 private:
  /// True when the shards of a tensor dim lie one behind the other in memory.
  [[nodiscard]] static bool is_outermost(std::int64_t tensor_dim, const Holdings& whole) {
    for (std::int64_t dim = 0; dim < tensor_dim; ++dim) {
      if (whole.first[static_cast<std::size_t>(dim)] > 1) return false;
    }
    return true;
  }

  /// What a rank's new part shares with its old one.
  [[nodiscard]] std::int64_t shared_by_all_to_all(const Edge& edge, const Sizes& in,
                                                  const Sizes& out) const {
    Sizes shared = out;
    const auto dim = static_cast<std::size_t>(edge.tensor_dim);
    shared[dim] = std::min(in[dim], out[dim]);
    return space_.numel(shared);
  }

  const StateSpace& space_;
};

class PathSearch {
 public:
  PathSearch(const StateSpace& space, const PlanOptions& options, const PathLimits& limits)
      : space_(space), options_(options), limits_(limits), moves_(space), edge_cost_(space) {}

  std::optional<std::vector<Step>> run() {
    add_node({space_.source(), 0, kNone, {}, {}});
    while (!queue_.empty()) {
      const auto [cost, index] = queue_.top();
      queue_.pop();
      if (cost > nodes_[index].cost_ps) continue;
      if (nodes_[index].state == space_.target()) return steps_to(index);
      if (nodes_.size() < kMostStates) expand(index);
    }
    return std::nullopt;
  }

 private:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  struct Node {
    PlacementState state;
    std::int64_t cost_ps;
    std::size_t previous;
    Edge edge;
    Traffic worst;
  };

  void expand(std::size_t index) {
    const PlacementState state = nodes_[index].state;
    const std::int64_t cost_so_far = nodes_[index].cost_ps;
    const Holdings in(space_, state);
    const std::int64_t input = state == space_.source() ? 0 : source_elements();
    for (auto& edge : moves_.from(state)) {
      const Holdings out(space_, edge.next);
      Traffic traffic = edge_cost_.traffic(edge, in, out);
      const bool local = edge.kind == StepKind::slice || edge.kind == StepKind::fill;
      if (!fits(edge, in, out, input, traffic.packed_bytes)) continue;
      for (auto* count : {&traffic.received_bytes, &traffic.sent_bytes, &traffic.packed_bytes}) {
        *count *= options_.element_size;
      }
      const std::int64_t cost =
          options_.cost.cost_ps(traffic) - (local ? options_.cost.launch_ps : 0);
      if (cost > limits_.cost_ps - cost_so_far) continue;  // Their sum may not fit.
      relax({edge.next, cost_so_far + cost, index, std::move(edge), traffic});
    }
  }

  /// Whether every rank, not only those that were priced, stays within the memory limits.
  [[nodiscard]] bool fits(const Edge& edge, const Holdings& in, const Holdings& out,
                          std::int64_t input, std::int64_t packed) const {
    std::int64_t staging = packed;
    if (edge.kind == StepKind::slice || edge.kind == StepKind::fill) staging = 0;
    if (edge.kind == StepKind::all_to_all) staging = in.most + out.most;
    return staging <= limits_.staging_elements &&
           input + in.most + out.most + staging <= limits_.peak_elements;
  }

  void relax(Node node) {
    const auto found = index_.find(node.state);
    if (found == index_.end()) {
      add_node(std::move(node));
    } else if (node.cost_ps < nodes_[found->second].cost_ps) {
      queue_.emplace(node.cost_ps, found->second);
      nodes_[found->second] = std::move(node);
    }
  }

  void add_node(Node node) {
    index_.emplace(node.state, nodes_.size());
    queue_.emplace(node.cost_ps, nodes_.size());
    nodes_.push_back(std::move(node));
  }

  std::int64_t source_elements() {
    if (source_elements_ < 0) source_elements_ = Holdings(space_, space_.source()).most;
    return source_elements_;
  }

  [[nodiscard]] std::vector<Step> steps_to(std::size_t index) const {
    std::vector<Step> steps;
    for (; nodes_[index].previous != kNone; index = nodes_[index].previous) {
      const Node& node = nodes_[index];
      const Node& previous = nodes_[node.previous];
      const std::int64_t cost = node.cost_ps - previous.cost_ps;
      if (!steps.empty() && steps.back().is_local() && steps.back().kind == node.edge.kind) {
        steps.back().from = space_.layout(previous.state);  // Two slices in a row are one.
        steps.back().cost_ps += cost;
        continue;
      }
      steps.push_back({node.edge.kind, space_.layout(previous.state), space_.layout(node.state),
                       node.edge.mesh_dims, node.edge.tensor_dim, 1, node.worst, cost});
      if (steps.back().is_local()) steps.back().tensor_dim = -1;
    }
    std::reverse(steps.begin(), steps.end());
    return steps;
  }

  using Entry = std::pair<std::int64_t, std::size_t>;

  const StateSpace& space_;
  const PlanOptions& options_;
  const PathLimits& limits_;
  Moves moves_;
  EdgeCost edge_cost_;
  std::vector<Node> nodes_;
  std::unordered_map<PlacementState, std::size_t, PlacementStateHash> index_;
  // Ties go to the node that was found first, on every rank.
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue_;
  std::int64_t source_elements_ = -1;
};

}  // namespace

std::optional<std::vector<Step>> find_path(const Layout& from, const Layout& to,
                                           const PlanOptions& options, const PathLimits& limits) {
  const auto space = StateSpace::make(from, to);
  if (!space) return std::nullopt;
  return PathSearch(*space, options, limits).run();
}

}  // namespace tessera::detail
