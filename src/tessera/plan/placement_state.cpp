#include "tessera/plan/placement_state.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "tessera/base/hash.h"

namespace tessera::detail {

std::size_t PlacementStateHash::operator()(const PlacementState& state) const {
  return hash_combine(std::bit_cast<std::uint64_t>(state.code),
                      std::bit_cast<std::uint64_t>(state.place));
}

std::optional<StateSpace> StateSpace::make(const Layout& from, const Layout& to) {
  if (!from.mesh().same_ranks(to.mesh()) || from.placements().size() > kMaxMeshDims ||
      from.shape().size() > kMaxTensorDims) {
    return std::nullopt;
  }
  StateSpace space(from, to);
  return space.encode() ? std::optional(space) : std::nullopt;
}

StateSpace::StateSpace(const Layout& from, const Layout& to)
    : from_(from), to_(to), mesh_ndim_(from.placements().size()) {
  source_.code.fill(PlacementState::kUnused);
  target_.code.fill(PlacementState::kUnused);
  kept_dim_.fill(-1);
  std::copy(from.mesh().sizes().begin(), from.mesh().sizes().end(), sizes_.begin());
}

/// Fills in source and target; false when a strided shard changes.
bool StateSpace::encode() {
  for (std::size_t i = 0; i < mesh_ndim_; ++i) {
    const auto& before = from_.placements()[i];
    const auto& after = to_.placements()[i];
    if (sizes_[i] == 1) {
      source_.code[i] = target_.code[i] = PlacementState::kKept;
      continue;
    }
    const bool kept = is_partial(before) && before == after;
    source_.code[i] = is_partial(before) ? PlacementState::kPending : PlacementState::kReplicate;
    target_.code[i] = is_partial(after) ? PlacementState::kFilled : PlacementState::kReplicate;
    if (kept) source_.code[i] = target_.code[i] = PlacementState::kKept;
  }
  for (std::size_t dim = 0; dim < from_.shape().size(); ++dim) {
    const auto before = from_.splits(static_cast<std::int64_t>(dim));
    const auto after = to_.splits(static_cast<std::int64_t>(dim));
    useful_[dim] = !before.empty() || !after.empty();
    for (const bool is_source : {true, false}) {
      const auto& splits = is_source ? before : after;
      const auto& others = is_source ? after : before;
      auto& state = is_source ? source_ : target_;
      bool shared = true;
      for (std::size_t place = 0; place < splits.size(); ++place) {
        const Split& split = splits[place];
        const auto mesh_dim = static_cast<std::size_t>(split.mesh_dim);
        shared = shared && place < others.size() && others[place] == split;
        if (split.pieces > 1 && !shared) return false;
        state.code[mesh_dim] =
            split.pieces > 1 ? PlacementState::kKept : static_cast<std::int8_t>(dim);
        if (split.pieces > 1) kept_dim_[mesh_dim] = static_cast<std::int8_t>(dim);
        state.place[mesh_dim] = static_cast<std::int8_t>(place);
      }
    }
  }
  return true;
}

ReduceOp StateSpace::filled_op(std::size_t mesh_dim) const {
  return std::get<Partial>(to_.placements()[mesh_dim]).op;
}

std::int8_t StateSpace::depth(const PlacementState& state, std::size_t tensor_dim) const {
  const auto dim = static_cast<std::int8_t>(tensor_dim);
  std::int8_t count = 0;
  for (std::size_t i = 0; i < mesh_ndim_; ++i) {
    if (state.code[i] == dim || kept_dim_[i] == dim) ++count;
  }
  return count;
}

std::optional<std::size_t> StateSpace::cut_at(const PlacementState& state, std::size_t tensor_dim,
                                              std::int8_t place) const {
  for (std::size_t i = 0; i < mesh_ndim_; ++i) {
    if (state.code[i] == static_cast<std::int8_t>(tensor_dim) && state.place[i] == place) return i;
  }
  return std::nullopt;
}

Sizes StateSpace::local_sizes(const PlacementState& state, bool last) const {
  Sizes sizes{};
  std::copy(from_.shape().begin(), from_.shape().end(), sizes.begin());
  // Cuts apply by place; there are few, so look for each place in turn.
  for (std::int8_t place = 0; place < static_cast<std::int8_t>(mesh_ndim_); ++place) {
    for (std::size_t i = 0; i < mesh_ndim_; ++i) {
      const std::int8_t dim = kept_dim_[i] >= 0 ? kept_dim_[i] : state.code[i];
      if (dim < 0 || state.place[i] != place) continue;
      const auto& placement = from_.placements()[i];
      const std::int64_t pieces =
          kept_dim_[i] >= 0 ? std::get<StridedShard>(placement).split_factor : 1;
      const Split split{static_cast<std::int64_t>(i), sizes_[i], pieces};
      auto& size = sizes[static_cast<std::size_t>(dim)];
      if (last || pieces == 1) {
        size = split.local_size(size, last ? sizes_[i] - 1 : 0);
      } else {  // The first rank need not have the most; see `most_held`.
        const std::int64_t cut = std::min(pieces, size);
        size = std::min(size, (size + cut * (sizes_[i] - 1)) / sizes_[i]);
      }
    }
  }
  return sizes;
}

std::int64_t StateSpace::numel(const Sizes& sizes) const {
  return std::accumulate(sizes.begin(), sizes.begin() + static_cast<std::ptrdiff_t>(tensor_ndim()),
                         std::int64_t{1}, std::multiplies<>());
}

Layout StateSpace::layout(const PlacementState& state) const {
  if (state == source_) return from_;
  if (state == target_) return to_;
  Placements placements;
  std::vector<std::int64_t> order(mesh_ndim_);
  std::iota(order.begin(), order.end(), std::int64_t{0});
  for (std::size_t i = 0; i < mesh_ndim_; ++i) {
    const std::int8_t code = state.code[i];
    if (code >= 0) {
      placements.emplace_back(Shard(code));
    } else if (code == PlacementState::kReplicate) {
      placements.emplace_back(Replicate());
    } else {
      placements.push_back(code == PlacementState::kFilled ? to_.placements()[i]
                                                           : from_.placements()[i]);
    }
  }
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    return state.place[static_cast<std::size_t>(a)] < state.place[static_cast<std::size_t>(b)];
  });
  return Layout(from_.mesh(), std::move(placements), from_.shape(), order);
}

}  // namespace tessera::detail
