#include "tessera/plan/box_exchange.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "tessera/base/check.h"

namespace tessera {
namespace {

/// A box of the source, and its places in the list: one for each rank that has a copy.
struct Source {
  const Box* box;
  std::vector<std::size_t> copies;
};

bool is_before(const Box& a, const Box& b) {
  return std::lexicographical_compare(a.dims.begin(), a.dims.end(), b.dims.begin(), b.dims.end(),
                                      [](const Extent& x, const Extent& y) {
                                        return std::pair(x.begin, x.size) <
                                               std::pair(y.begin, y.size);
                                      });
}

/// The boxes with elements, each once, in the order of the list.
std::vector<Source> sources_of(const BoxMap& from) {
  const auto& boxes = from.boxes();
  std::vector<std::size_t> order(boxes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::erase_if(order, [&](std::size_t i) { return boxes[i].box.numel() == 0; });
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return is_before(boxes[a].box, boxes[b].box);
  });
  std::vector<Source> sources;
  for (const auto i : order) {
    if (sources.empty() || *sources.back().box != boxes[i].box) {
      sources.push_back({&boxes[i].box, {}});
    }
    sources.back().copies.push_back(i);
  }
  std::sort(sources.begin(), sources.end(),
            [](const Source& a, const Source& b) { return a.copies.front() < b.copies.front(); });
  return sources;
}

void check(const BoxMap& from, const BoxMap& to, const std::vector<Source>& sources) {
  TESSERA_CHECK(from.shape() == to.shape(), "plan_box_exchange: boxes of shape [",
                joined(from.shape(), ","), "] given to be moved to boxes of shape [",
                joined(to.shape(), ","), "]; the shapes must be equal");
  std::int64_t held = 0;
  for (const auto& source : sources) held += source.box->numel();
  const std::int64_t numel = whole_box(from.shape()).numel();
  TESSERA_CHECK(held == numel, "plan_box_exchange: the boxes given hold ", held,
                " elements of the ", numel, " that shape [", joined(from.shape(), ","),
                "] has; every element must be held, and by one box only");
}

/// The copy of a source that serves box `to_index` of the destination.
std::size_t serving_copy(const BoxMap& from, const BoxMap& to, const Source& source,
                         std::size_t to_index) {
  const std::int64_t receiver = to.boxes()[to_index].rank;
  for (const auto copy : source.copies) {
    if (from.boxes()[copy].rank == receiver) return copy;
  }
  return source.copies[to_index % source.copies.size()];
}

/// What one message carries, in the order in which both sides pack it.
struct Parcel {
  std::vector<std::size_t> pieces;
  /// Counted from the pieces' own first elements.
  std::vector<Extent> extents;
  std::int64_t numel = 0;

  void add(std::size_t piece, const Box& whole, const Box& part) {
    pieces.push_back(piece);
    for (std::size_t d = 0; d < part.dims.size(); ++d) {
      extents.push_back({part.dims[d].begin - whole.dims[d].begin, part.dims[d].size});
    }
    numel += part.numel();
  }
};
using Parcels = std::map<std::int64_t, Parcel>;

std::vector<Message> messages_of(const Parcels& parcels, BoxExchange& exchange) {
  std::vector<Message> messages;
  for (const auto& [peer, parcel] : parcels) {
    messages.push_back({.peer = peer,
                        .numel = parcel.numel,
                        .first_box = exchange.pieces.size(),
                        .box_count = parcel.pieces.size()});
    exchange.pieces.insert(exchange.pieces.end(), parcel.pieces.begin(), parcel.pieces.end());
    exchange.step.extents.insert(exchange.step.extents.end(), parcel.extents.begin(),
                                 parcel.extents.end());
  }
  return messages;
}

std::int64_t numel_of_others(const std::vector<Message>& messages, std::int64_t rank) {
  std::int64_t numel = 0;
  for (const auto& message : messages) numel += message.peer == rank ? 0 : message.numel;
  return numel;
}

Shape first_shape(const BoxMap& map, std::int64_t rank) {
  for (const auto& owned : map.boxes()) {
    if (owned.rank == rank) return owned.box.shape();
  }
  return {};
}

}  // namespace

BoxExchange plan_box_exchange(const BoxMap& from, const BoxMap& to, std::int64_t rank) {
  const auto sources = sources_of(from);
  check(from, to, sources);
  Parcels sends;
  Parcels receives;
  // Both sides walk the boxes in this order, so both pack a message alike.
  for (const auto& source : sources) {
    const bool is_held = std::any_of(source.copies.begin(), source.copies.end(),
                                     [&](auto i) { return from.boxes()[i].rank == rank; });
    for (std::size_t j = 0; j < to.boxes().size(); ++j) {
      const auto& [needed, receiver] = to.boxes()[j];
      if (!is_held && receiver != rank) continue;
      const auto common = intersection(*source.box, needed);
      if (!common) continue;
      const std::size_t copy = serving_copy(from, to, source, j);
      const std::int64_t sender = from.boxes()[copy].rank;
      if (sender == rank) sends[receiver].add(from.piece(copy), *source.box, *common);
      if (receiver == rank) receives[sender].add(to.piece(j), needed, *common);
    }
  }
  BoxExchange exchange;
  exchange.step.in_shape = first_shape(from, rank);
  exchange.step.out_shape = first_shape(to, rank);
  exchange.step.sends = messages_of(sends, exchange);
  exchange.step.receives = messages_of(receives, exchange);
  exchange.sent_numel = numel_of_others(exchange.step.sends, rank);
  exchange.received_numel = numel_of_others(exchange.step.receives, rank);
  return exchange;
}

bool needs_traffic(const BoxMap& from, const BoxMap& to) {
  // What each rank holds; copies on one rank cannot be told from overlaps, and need not be.
  std::map<std::int64_t, std::vector<const Box*>> held;
  for (const auto& owned : from.boxes()) held[owned.rank].push_back(&owned.box);
  return std::any_of(to.boxes().begin(), to.boxes().end(), [&](const OwnedBox& needed) {
    std::int64_t missing = needed.box.numel();
    for (const Box* box : held[needed.rank]) {
      if (const auto common = intersection(*box, needed.box)) missing -= common->numel();
    }
    return missing > 0;
  });
}

}  // namespace tessera
