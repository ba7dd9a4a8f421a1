#include <algorithm>
#include <string>

#include "tessera/base/check.h"
#include "tessera/plan/op_rule.h"

// The builders write a rule's text and parse it: one place knows what a rule may say.

namespace tessera {
namespace {

/// a, b, ..., z, a1, b1, ...: short names, so that rules read well in messages.
std::string factor_name(std::size_t dim) {
  constexpr std::size_t kLetters = 26;
  const std::string letter(1, static_cast<char>('a' + static_cast<char>(dim % kLetters)));
  return dim < kLetters ? letter : concat(letter, dim / kLetters);
}

std::vector<std::string> factor_names(std::size_t ndim) {
  std::vector<std::string> names;
  for (std::size_t dim = 0; dim < ndim; ++dim) names.push_back(factor_name(dim));
  return names;
}

std::string tensor_text(const std::vector<std::string>& dims) {
  return concat('(', joined(dims, " "), ')');
}

std::string linear_text(const std::vector<std::vector<std::int64_t>>& linear) {
  std::vector<std::string> groups;
  groups.reserve(linear.size());
  for (const auto& group : linear) groups.push_back(concat('{', joined(group, " "), '}'));
  return groups.empty() ? std::string() : concat(" | linear ", joined(groups));
}

/// The shape that all broadcast to.
Shape broadcast_shape(std::string_view name, const std::vector<Shape>& shapes) {
  std::size_t ndim = 0;
  for (const auto& shape : shapes) ndim = std::max(ndim, shape.size());
  Shape result(ndim, 1);
  for (const auto& shape : shapes) {
    for (std::size_t i = 0; i < shape.size(); ++i) {
      auto& size = result[ndim - shape.size() + i];
      TESSERA_CHECK(shape[i] == size || shape[i] == 1 || size == 1, "pointwise_rule: ", name,
                    " of an input of shape [", joined(shape, ","), "] has size ", shape[i],
                    " where another has ", size,
                    "; sizes, aligned at the last dim, must be equal or 1");
      if (size == 1) size = shape[i];
    }
  }
  return result;
}

/// Counts a negative dim from the end.
std::int64_t counted_dim(std::string_view function, std::string_view name, std::int64_t dim,
                         std::int64_t ndim) {
  const std::int64_t reach = std::max<std::int64_t>(ndim, 1);
  TESSERA_CHECK(dim >= -reach && dim < reach, function, ": dim ", dim, " given for ", name,
                " of a tensor of ", ndim, " dim(s); allowed are ", -reach, " to ", reach - 1);
  return dim < 0 ? dim + reach : dim;
}

/// Marks which dims are reduced; all when none are named.
std::vector<bool> reduced_dims(std::string_view name, std::int64_t ndim,
                               const std::vector<std::int64_t>& dims) {
  // A tensor without dims is reduced as if it had one, which then is not there.
  std::vector<bool> reduced(static_cast<std::size_t>(std::max<std::int64_t>(ndim, 1)),
                            dims.empty());
  for (const auto dim : dims) {
    const auto at = static_cast<std::size_t>(counted_dim("reduction_rule", name, dim, ndim));
    TESSERA_CHECK(!reduced[at], "reduction_rule: ", name, " over dims (", joined(dims),
                  ") names dim ", at, " twice; name every dim once");
    reduced[at] = true;
  }
  return reduced;
}

std::string kind_text(std::optional<ReduceOp> op) {
  if (!op) return "whole";
  return *op == ReduceOp::avg ? "mean" : to_string(*op);
}

}  // namespace

OpRule pointwise_rule(std::string_view name, const std::vector<Shape>& shapes,
                      const std::vector<std::vector<std::int64_t>>& linear) {
  TESSERA_CHECK(!shapes.empty(), "pointwise_rule: no shapes given for ", name,
                "; pass the shape of every input");
  const Shape result = broadcast_shape(name, shapes);
  const auto names = factor_names(result.size());
  std::vector<std::string> inputs;
  for (const auto& shape : shapes) {
    const std::size_t first = result.size() - shape.size();
    std::vector<std::string> dims;
    for (std::size_t i = 0; i < shape.size(); ++i) {
      dims.push_back(shape[i] == result[first + i] ? names[first + i] : std::string(1, '1'));
    }
    inputs.push_back(tensor_text(dims));
  }
  return OpRule::parse(
      concat(name, ": ", joined(inputs), " -> ", tensor_text(names), linear_text(linear)));
}

OpRule reduction_rule(std::string_view name, std::int64_t ndim,
                      const std::vector<std::int64_t>& dims, bool keepdim,
                      std::optional<ReduceOp> op) {
  TESSERA_CHECK(ndim >= 0, "reduction_rule: ", ndim, " dims given for ", name,
                "; pass zero or more");
  const auto reduced = reduced_dims(name, ndim, dims);
  const auto names = factor_names(static_cast<std::size_t>(ndim));
  std::vector<std::string> output;
  std::vector<std::string> clauses;
  for (std::size_t dim = 0; dim < names.size(); ++dim) {
    if (!reduced[dim]) output.push_back(names[dim]);
    if (reduced[dim] && keepdim) output.emplace_back("1");
    if (reduced[dim]) clauses.push_back(concat(names[dim], ": ", kind_text(op)));
  }
  const bool linear = op == ReduceOp::sum || op == ReduceOp::avg;
  return OpRule::parse(concat(name, ": ", tensor_text(names), " -> ", tensor_text(output),
                              clauses.empty() ? "" : " | ", joined(clauses),
                              linear ? " | linear {0}" : ""));
}

OpRule permute_rule(std::string_view name, const std::vector<std::int64_t>& permutation) {
  const auto ndim = static_cast<std::int64_t>(permutation.size());
  const auto names = factor_names(permutation.size());
  std::vector<std::string> output;
  output.reserve(permutation.size());
  for (const auto dim : permutation) {
    output.push_back(names[static_cast<std::size_t>(counted_dim("permute_rule", name, dim, ndim))]);
  }
  auto sorted = output;
  std::sort(sorted.begin(), sorted.end());
  TESSERA_CHECK(std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end(),
                "permute_rule: ", name, " by (", joined(permutation),
                ") given; name every dim once");
  return OpRule::parse(
      concat(name, ": ", tensor_text(names), " -> ", tensor_text(output), " | linear {0}"));
}

}  // namespace tessera
