#include "tessera/plan/op_rule.h"

#include <algorithm>
#include <ostream>

#include "tessera/base/check.h"

namespace tessera {
namespace {

/// Which dim of a tensor carries the factor.
std::optional<std::int64_t> dim_of(const OpRule::Dims& dims, std::size_t factor) {
  const auto found = std::find(dims.begin(), dims.end(), static_cast<std::int64_t>(factor));
  if (found == dims.end()) return std::nullopt;
  return found - dims.begin();
}

Placement shard(std::int64_t dim, std::int64_t split_factor) {
  if (split_factor == 1) return Shard(dim);
  return StridedShard(dim, split_factor);
}

bool contains(const std::vector<std::int64_t>& items, std::size_t item) {
  return std::find(items.begin(), items.end(), static_cast<std::int64_t>(item)) != items.end();
}

/// Collects the sizes of a rule's factors and who stated them.
class Binding {
 public:
  explicit Binding(const OpRule& rule) : rule_(rule), known_(rule.factors().size()) {}

  void bind_input(std::size_t input, const Shape& shape) {
    const auto& dims = rule_.inputs()[input];
    TESSERA_CHECK(shape.size() == dims.size(), "OpRule::bind: input ", input, " has shape [",
                  joined(shape, ","), "] with ", shape.size(), " dim(s); the rule ", rule_,
                  " wants ", dims.size());
    for (std::size_t dim = 0; dim < dims.size(); ++dim) {
      TESSERA_CHECK(dims[dim] != OpRule::kBroadcast || shape[dim] == 1, "OpRule::bind: input ",
                    input, " has size ", shape[dim], " at dim ", dim, ", where the rule ", rule_,
                    " has 1; name a factor there");
      if (dims[dim] == OpRule::kBroadcast) continue;
      bind(static_cast<std::size_t>(dims[dim]), shape[dim],
           concat("input ", input, " at dim ", dim));
    }
  }

  void bind_given(const FactorSize& given) {
    const auto& factors = rule_.factors();
    const auto found = std::find_if(factors.begin(), factors.end(), [&](const Factor& factor) {
      return factor.name == given.factor;
    });
    TESSERA_CHECK(found != factors.end(), "OpRule::bind: a size of factor ", given.factor,
                  " given; the rule ", rule_, " has no such factor");
    bind(static_cast<std::size_t>(found - factors.begin()), given.size, "the given size");
  }

  std::vector<std::int64_t> sizes() const {
    std::vector<std::int64_t> sizes;
    for (std::size_t i = 0; i < known_.size(); ++i) {
      TESSERA_CHECK(known_[i].has_value(), "OpRule::bind: factor ", rule_.factors()[i].name,
                    " of the rule ", rule_, " is in no input; give its size");
      sizes.push_back(known_[i]->size);
    }
    return sizes;
  }

 private:
  struct Known {
    std::int64_t size;
    std::string source;
  };

  void bind(std::size_t factor, std::int64_t size, const std::string& source) {
    TESSERA_CHECK(size >= 0, "OpRule::bind: factor ", rule_.factors()[factor].name, " has size ",
                  size, " by ", source, "; sizes must be zero or more");
    auto& known = known_[factor];
    if (!known) known = Known{size, source};
    TESSERA_CHECK(known->size == size, "OpRule::bind: factor ", rule_.factors()[factor].name,
                  " of the rule ", rule_, " has size ", known->size, " by ", known->source,
                  " and size ", size, " by ", source,
                  "; they must agree: a dim that is broadcast is written 1");
  }

  const OpRule& rule_;
  std::vector<std::optional<Known>> known_;
};

const char* kind_text(const Factor& factor) {
  switch (factor.kind) {
    case FactorKind::pass_through:
      return "";
    case FactorKind::reduce:
      return to_string(factor.op);
    case FactorKind::mean:
      return "mean";
    case FactorKind::whole:
      return "whole";
  }
  TESSERA_INTERNAL_CHECK(false, "factor kind ", static_cast<int>(factor.kind));
}

std::string group_text(const std::vector<std::int64_t>& inputs) {
  return concat('{', joined(inputs, " "), '}');
}

}  // namespace

std::ostream& operator<<(std::ostream& os, const Strategy& strategy) {
  return os << joined(strategy.inputs) << " -> " << joined(strategy.outputs);
}

std::ostream& operator<<(std::ostream& os, const OpRule& rule) { return os << rule.to_string(); }

std::vector<Strategy> OpRule::strategies() const {
  std::vector<Strategy> all;
  all.push_back({std::vector<Placement>(inputs_.size(), Replicate()),
                 std::vector<Placement>(outputs_.size(), Replicate()), std::nullopt});
  for (std::size_t i = 0; i < factors_.size(); ++i) {
    if (factors_[i].kind != FactorKind::whole) all.push_back(shard_factor(i));
  }
  for (const auto& group : linear_) {
    for (const auto op : {ReduceOp::sum, ReduceOp::avg}) {
      Strategy& strategy = all.emplace_back(all.front());
      for (const auto input : group) {
        strategy.inputs[static_cast<std::size_t>(input)] = Partial(op);
      }
      strategy.outputs.assign(outputs_.size(), Partial(op));
    }
  }
  return all;
}

Strategy OpRule::shard_factor(std::size_t factor, std::int64_t split_factor) const {
  TESSERA_CHECK(factor < factors_.size(), "OpRule::shard_factor: factor ", factor,
                " given; the rule ", *this, " has ", factors_.size());
  const Factor& sharded = factors_[factor];
  TESSERA_CHECK(sharded.kind != FactorKind::whole, "OpRule::shard_factor: factor ", sharded.name,
                " given, which must be whole by the rule ", *this, "; shard another one");
  TESSERA_CHECK(split_factor >= 1, "OpRule::shard_factor: split_factor ", split_factor,
                " given; it must be at least 1");
  Strategy strategy;
  strategy.factor = factor;
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    Placement placement = Replicate();
    if (const auto dim = dim_of(inputs_[i], factor)) placement = shard(*dim, split_factor);
    if (contains(sharded.addends, i)) placement = Partial(sharded.op);
    strategy.inputs.push_back(placement);
  }
  for (const auto& dims : outputs_) {
    const auto dim = dim_of(dims, factor);
    strategy.outputs.push_back(dim ? shard(*dim, split_factor) : Partial(sharded.op));
  }
  return strategy;
}

std::vector<std::int64_t> OpRule::bind(const std::vector<Shape>& shapes,
                                       const std::vector<FactorSize>& sizes) const {
  TESSERA_CHECK(shapes.size() == inputs_.size(), "OpRule::bind: ", shapes.size(),
                " shape(s) given; the rule ", *this, " has ", inputs_.size(),
                " input(s); pass one for each");
  Binding binding(*this);
  for (std::size_t i = 0; i < shapes.size(); ++i) binding.bind_input(i, shapes[i]);
  for (const auto& given : sizes) binding.bind_given(given);
  return binding.sizes();
}

Shape OpRule::output_shape(std::size_t output,
                           const std::vector<std::int64_t>& factor_sizes) const {
  TESSERA_CHECK(output < outputs_.size(), "OpRule::output_shape: output ", output,
                " given; the rule ", *this, " has ", outputs_.size());
  TESSERA_CHECK(factor_sizes.size() == factors_.size(),
                "OpRule::output_shape: ", factor_sizes.size(), " size(s) given; the rule ", *this,
                " has ", factors_.size(), " factor(s); pass what bind returns");
  Shape shape;
  for (const auto factor : outputs_[output]) {
    shape.push_back(factor == kBroadcast ? 1 : factor_sizes[static_cast<std::size_t>(factor)]);
  }
  return shape;
}

std::string OpRule::to_string() const {
  const auto tensors_text = [this](const std::vector<Dims>& tensors) {
    std::vector<std::string> texts;
    for (const auto& dims : tensors) {
      std::vector<std::string> names;
      names.reserve(dims.size());
      for (const auto dim : dims) {
        names.push_back(dim == kBroadcast ? "1" : factors_[static_cast<std::size_t>(dim)].name);
      }
      texts.push_back(concat('(', joined(names, " "), ')'));
    }
    return joined(texts);
  };
  std::vector<std::string> clauses;
  for (const auto& factor : factors_) {
    if (factor.kind == FactorKind::pass_through) continue;
    clauses.push_back(concat(factor.name, ": ", kind_text(factor),
                             factor.addends.empty() ? "" : " ",
                             factor.addends.empty() ? "" : group_text(factor.addends)));
  }
  std::vector<std::string> groups;
  for (const auto& group : linear_) groups.push_back(group_text(group));

  std::string text = concat(name_, ": ", tensors_text(inputs_), " -> ", tensors_text(outputs_));
  if (!clauses.empty()) text += concat(" | ", joined(clauses));
  if (!groups.empty()) text += concat(" | linear ", joined(groups));
  return text;
}

}  // namespace tessera
