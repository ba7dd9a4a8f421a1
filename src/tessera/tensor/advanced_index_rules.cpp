#include <algorithm>

#include "tessera/tensor/op_call.h"
#include "tessera/tensor/rule_text.h"
#include "tessera/tensor/rules.h"

namespace tessera::detail {
namespace {

// x[i, :, j] and x[i, :, j] = y, with tensors of integers. Dims that are indexed are whole, dims that
// are not pass, and the dims of the indices, which are broadcast against each other, may be cut.

/// The tensors of one such call.
struct IndexDims {
  Dims self;
  /// One per index.
  std::vector<std::string> indices;
  /// Those of the broadcast indices, and of `self[indices]` with their sizes.
  Dims broadcast;
  Dims taken;
  Shape taken_shape;
  /// Of self: what is indexed.
  std::vector<std::string> whole;
};

bool is_integer_index(const CallTensor& input) {
  return input.element &&
         (input.tensor.scalar_type() == at::kLong || input.tensor.scalar_type() == at::kInt);
}

/// Aligned at the end, the sizes that all of them are broadcast to.
std::optional<Shape> broadcast_shape(const std::vector<Shape>& shapes) {
  Shape all;
  for (const auto& shape : shapes) {
    if (shape.size() > all.size()) all.insert(all.begin(), shape.size() - all.size(), 1);
    for (std::size_t d = 0; d < shape.size(); ++d) {
      auto& size = all[all.size() - shape.size() + d];
      if (size != 1 && shape[d] != 1 && shape[d] != size) return std::nullopt;
      if (shape[d] != 1) size = shape[d];
    }
  }
  return all;
}

/// The dims of a tensor that is broadcast to `to`, aligned at the end.
Dims aligned(const Shape& shape, const Dims& to, const Shape& to_shape) {
  Dims dims;
  const auto skipped = to_shape.size() - shape.size();
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const bool follows = shape[d] == to_shape[skipped + d];
    dims.push_back(follows ? to[static_cast<std::int64_t>(skipped + d)] : "1");
  }
  return dims;
}

/// Where the indices' dims go: to the place of the first one when they stand side by side, else to
/// the front.
std::int64_t place_of(const std::vector<std::int64_t>& indexed) {
  const bool is_block =
      indexed.back() - indexed.front() + 1 == static_cast<std::int64_t>(indexed.size());
  return is_block ? indexed.front() : 0;
}

/// `count` inputs behind self are indices. Nothing for masks, and for more indices than dims.
std::optional<IndexDims> index_dims(const OpCall& call, std::size_t count) {
  std::vector<Shape> shapes;
  std::vector<std::int64_t> indexed;
  for (std::size_t i = 1; i <= count; ++i) {
    if (!is_integer_index(call.inputs()[i])) return std::nullopt;
    shapes.push_back(call.shape(i));
    indexed.push_back(static_cast<std::int64_t>(*call.inputs()[i].element));
  }
  const auto all = broadcast_shape(shapes);
  if (!all || indexed.empty() || indexed.back() >= call.ndim(0)) return std::nullopt;
  IndexDims dims;
  dims.self = Dims("a", call.ndim(0));
  dims.broadcast = Dims("i", std::ssize(*all));
  for (const auto& shape : shapes) {
    dims.indices.push_back(aligned(shape, dims.broadcast, *all).text());
  }
  for (std::int64_t d = 0; d < dims.self.size(); ++d) {
    if (std::find(indexed.begin(), indexed.end(), d) != indexed.end()) {
      dims.whole.push_back(dims.self[d]);
    } else {
      dims.taken.push_back(dims.self[d]);
      dims.taken_shape.push_back(call.shape(0)[static_cast<std::size_t>(d)]);
    }
  }
  const std::int64_t place = place_of(indexed);
  for (std::int64_t d = 0; d < dims.broadcast.size(); ++d) {
    dims.taken.insert(place + d, dims.broadcast[d]);
    dims.taken_shape.insert(dims.taken_shape.begin() + place + d,
                            (*all)[static_cast<std::size_t>(d)]);
  }
  return dims;
}

std::optional<OpDecision> decide_index(const OpCall& call) {
  const auto dims = index_dims(call, call.inputs().size() - 1);
  if (!dims) return std::nullopt;
  return decide(call, OpRule::parse(concat("index: ", dims->self.text(), ", ",
                                           joined(dims->indices), " -> ", dims->taken.text(), " | ",
                                           joined(dims->whole, " "), ": whole | linear {0}")));
}

bool is_number(at::ScalarType dtype) { return dtype != at::kBool; }

/// Values that are added may be cut together with the indices: every rank adds its own.
std::optional<OpDecision> decide_index_put(const OpCall& call) {
  if (call.inputs().size() < 3 || call.inputs().back().element) return std::nullopt;
  const std::size_t last = call.inputs().size() - 1;
  const auto dims = index_dims(call, last - 1);
  if (!dims || call.shape(last).size() > dims->taken_shape.size()) return std::nullopt;
  const std::string values = aligned(call.shape(last), dims->taken, dims->taken_shape).text();
  const bool is_sum =
      call.argument("accumulate").toBool() && is_number(call.inputs()[0].tensor.scalar_type());
  std::vector<std::string> whole = dims->whole;
  const auto& indices = dims->broadcast.names();
  if (!is_sum) whole.insert(whole.end(), indices.begin(), indices.end());
  const std::string summed =
      is_sum && !indices.empty() ? concat(" | ", joined(indices, " "), ": sum {0}") : "";
  return decide(call,
                OpRule::parse(concat(call.traits().base_name, ": ", dims->self.text(), ", ",
                                     joined(dims->indices), ", ", values, " -> ", dims->self.text(),
                                     " | ", joined(whole, " "), ": whole", summed,
                                     is_sum ? concat(" | linear {0 ", last, "}") : "")));
}

/// put(self, index, source): places in all of self, which is whole; what is added may be cut.
std::optional<OpDecision> decide_put(const OpCall& call) {
  if (call.inputs().size() != 3 || call.shape(1) != call.shape(2) || call.ndim(1) == 0 ||
      !call.argument("accumulate").toBool() || !is_number(call.inputs()[0].tensor.scalar_type())) {
    return std::nullopt;
  }
  const Dims self("a", call.ndim(0));
  const Dims index("i", call.ndim(1));
  const std::string whole =
      self.size() == 0 ? "" : concat(" | ", joined(self.names(), " "), ": whole");
  return decide(call,
                OpRule::parse(concat("put: ", self.text(), ", ", index.text(), ", ", index.text(),
                                     " -> ", self.text(), whole, " | ", joined(index.names(), " "),
                                     ": sum {0} | linear {0 2}")));
}

}  // namespace

void add_advanced_index_rules(RuleTable& table) {
  for (const auto* name : {"index", "_unsafe_index"}) table.emplace(name, &decide_index);
  for (const auto* name : {"index_put", "_index_put_impl", "_unsafe_index_put"}) {
    table.emplace(name, &decide_index_put);
  }
  table.emplace("put", &decide_put);
}

}  // namespace tessera::detail
