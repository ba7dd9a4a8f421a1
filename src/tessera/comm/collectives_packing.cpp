#include "tessera/comm/collectives_packing.h"

#include <algorithm>
#include <numeric>

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include "tessera/layout/chunk.h"

namespace tessera::detail {
namespace {

/// True when the pieces of a contiguous tensor of this shape lie one behind the other.
bool lies_in_order(at::IntArrayRef shape, std::int64_t dim) {
  return std::all_of(shape.begin(), shape.begin() + dim, [](auto size) { return size == 1; });
}

/// Calls `visit(tensor, piece, first)` for each member's piece of each tensor in the order in which
/// they are packed, `first` being the number of elements before it.
template <typename Visit>
void visit_pieces(const Tensors& tensors, const Cuts& cuts, const Visit& visit) {
  Sizes begins(tensors.size(), 0);
  std::int64_t first = 0;
  for (std::size_t member = 0; member < cuts.front().sizes.size(); ++member) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const std::int64_t size = cuts[i].sizes[member];
      const at::Tensor piece = tensors[i].narrow(cuts[i].dim, begins[i], size);
      visit(piece, first);
      begins[i] += size;
      first += piece.numel();
    }
  }
}

}  // namespace

std::int64_t Cut::total() const { return sum(sizes); }

Sizes resized(at::IntArrayRef shape, std::int64_t dim, std::int64_t size) {
  Sizes sizes = shape.vec();
  sizes[at_index(dim)] = size;
  return sizes;
}

Sizes chunk_sizes(std::int64_t length, std::int64_t members) {
  Sizes sizes;
  for (std::int64_t i = 0; i < members; ++i) {
    sizes.push_back(chunk_extent(length, members, i).size);
  }
  return sizes;
}

std::vector<std::vector<std::size_t>> group_by_dtype(const Tensors& tensors) {
  std::vector<std::vector<std::size_t>> groups;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto found = std::find_if(groups.begin(), groups.end(), [&](const auto& group) {
      const at::Tensor& other = tensors[group.front()];
      return other.scalar_type() == tensors[i].scalar_type() &&
             other.device() == tensors[i].device();
    });
    (found != groups.end() ? *found : groups.emplace_back()).push_back(i);
  }
  return groups;
}

Sizes piece_counts(const Tensors& tensors, const Cuts& cuts) {
  Sizes counts(cuts.front().sizes.size(), 0);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto line = resized(tensors[i].sizes(), cuts[i].dim, 1);
    const std::int64_t elements =
        std::accumulate(line.begin(), line.end(), std::int64_t{1}, std::multiplies<>());
    for (std::size_t member = 0; member < counts.size(); ++member) {
      counts[member] += cuts[i].sizes[member] * elements;
    }
  }
  return counts;
}

at::Tensor flattened(const at::Tensor& x) {
  return x.resolve_conj().resolve_neg().contiguous().view({x.numel()});
}

at::Tensor flattened(const Tensors& tensors) {
  if (tensors.size() == 1) return flattened(tensors.front());
  Tensors flat;
  flat.reserve(tensors.size());
  for (const auto& tensor : tensors) flat.push_back(flattened(tensor));
  return at::cat(flat);
}

at::Tensor pack(const Tensors& tensors, const Cuts& cuts) {
  if (tensors.size() == 1 && lies_in_order(tensors.front().sizes(), cuts.front().dim)) {
    return flattened(tensors.front());
  }
  std::int64_t total = 0;
  for (const auto& tensor : tensors) total += tensor.numel();
  at::Tensor flat = at::empty({total}, tensors.front().options());
  visit_pieces(tensors, cuts, [&](const at::Tensor& piece, std::int64_t first) {
    flat.narrow(0, first, piece.numel()).view(piece.sizes()).copy_(piece);
  });
  return flat;
}

Arrival::Arrival(const Tensors& like, Cuts arriving) : cuts(std::move(arriving)) {
  std::int64_t total = 0;
  for (std::size_t i = 0; i < like.size(); ++i) {
    const auto shape = resized(like[i].sizes(), cuts[i].dim, cuts[i].total());
    tensors.push_back(at::empty(shape, like[i].options()));
    total += tensors.back().numel();
  }
  shares_memory = tensors.size() == 1 && lies_in_order(tensors.front().sizes(), cuts.front().dim);
  flat = shares_memory ? tensors.front().view({total}) : at::empty({total}, like.front().options());
}

void Arrival::unpack() const {
  if (shares_memory) return;
  visit_pieces(tensors, cuts, [&](const at::Tensor& piece, std::int64_t first) {
    piece.copy_(flat.narrow(0, first, piece.numel()).view(piece.sizes()));
  });
}

at::Tensor as_bytes(const at::Tensor& flat) { return flat.view(at::kByte); }

Sizes in_bytes(Sizes counts, const at::Tensor& flat) {
  for (auto& count : counts) count *= static_cast<std::int64_t>(flat.element_size());
  return counts;
}

}  // namespace tessera::detail
