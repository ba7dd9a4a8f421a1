#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "plan/op_rule_oracle.h"

/// Plain ops to try rules on. They know nothing of the rules.
namespace tessera::test {

/// How to fold values: where to begin, and how to go on.
struct Fold {
  double identity;
  std::function<double(double, double)> step;
};

inline Fold fold_of(ReduceOp op) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  switch (op) {
    case ReduceOp::max:
      return {-kInfinity, [](double a, double b) { return std::max(a, b); }};
    case ReduceOp::min:
      return {kInfinity, [](double a, double b) { return std::min(a, b); }};
    case ReduceOp::product:
      return {1, [](double a, double b) { return a * b; }};
    default:
      return {0, [](double a, double b) { return a + b; }};
  }
}

using Scalars = std::vector<double>;

/// An op that loops over letters: each output element folds `apply` of the inputs' elements over
/// the letters that the output lacks. A dim called '1' is broadcast. The product of matrices is
/// `{{"mk", "kn"}, "mn", product}`.
struct LetterOp {
  std::vector<std::string> inputs;
  std::string output;
  std::function<double(const Scalars&)> apply;
  ReduceOp reduce = ReduceOp::sum;

  std::vector<Array> operator()(const LocalCall& call) const {
    std::map<char, std::int64_t> sizes{{'1', 1}};
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      for (std::size_t dim = 0; dim < inputs[i].size(); ++dim) {
        sizes[inputs[i][dim]] = call.inputs[i].shape[dim];
      }
    }
    Shape loop;
    for (const auto& [letter, size] : sizes) loop.push_back(size);
    Shape output_shape;
    for (const char letter : output) output_shape.push_back(sizes.at(letter));
    std::vector<Shape> strides;
    for (const auto& input : inputs) strides.push_back(strides_of(input, sizes));
    const Shape output_strides = strides_of(output, sizes);
    const auto offset = [](const Shape& index, const Shape& steps) {
      return static_cast<std::size_t>(
          std::inner_product(index.begin(), index.end(), steps.begin(), std::int64_t{0}));
    };

    const Fold fold = fold_of(reduce);
    Array result(output_shape, fold.identity);
    Scalars scalars(inputs.size());
    for_each_index(loop, [&](const Shape& index) {
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        scalars[i] = call.inputs[i].data[offset(index, strides[i])];
      }
      double& value = result.data[offset(index, output_strides)];
      value = fold.step(value, apply(scalars));
    });
    if (reduce == ReduceOp::avg) divide(result, call, loop);
    return {result};
  }

 private:
  /// How far apart neighbours along each letter, in the order of `sizes`, are in a tensor.
  static Shape strides_of(const std::string& names, const std::map<char, std::int64_t>& sizes) {
    Shape strides;
    for (const auto& [letter, size] : sizes) {
      const auto dim = names.find(letter);
      const bool moves = letter != '1' && dim != std::string::npos;
      std::int64_t stride = moves ? 1 : 0;
      for (const char inner : moves ? names.substr(dim + 1) : "") stride *= sizes.at(inner);
      strides.push_back(stride);
    }
    return strides;
  }
  static void divide(Array& sums, const LocalCall& call, const Shape& loop) {
    std::int64_t count = 1;
    for (const auto size : loop) count *= size;
    if (!sums.data.empty()) count /= std::ssize(sums.data);
    const auto divisor = static_cast<double>(call.mean_count.value_or(count));
    for (auto& value : sums.data) value /= divisor;
  }
};

inline double product_of(const Scalars& x) {
  double product = 1;
  for (const double value : x) product *= value;
  return product;
}

inline double sum_of(const Scalars& x) {
  double sum = 0;
  for (const double value : x) sum += value;
  return sum;
}

inline double first_of(const Scalars& x) { return x[0]; }

/// addmm and nn.Linear: the second and third input multiplied, the first added.
inline std::vector<Array> add_matrix_product(const LocalCall& call) {
  const LetterOp product{{"mk", "kn"}, "mn", product_of};
  auto results = product({{call.inputs[1], call.inputs[2]}, {}});
  const Array& bias = call.inputs[0];
  for_each_index(results[0].shape, [&](const Shape& index) {
    results[0].at(index) += bias.at(bias.shape.size() == 1 ? Shape{index[1]} : index);
  });
  return results;
}

/// Softmax over the last dim.
inline std::vector<Array> softmax(const LocalCall& call) {
  Array result = call.inputs[0];
  const auto row = static_cast<std::size_t>(result.shape.back());
  for (std::size_t begin = 0; row > 0 && begin < result.data.size(); begin += row) {
    double total = 0;
    for (std::size_t i = begin; i < begin + row; ++i) {
      total += result.data[i] = std::exp(result.data[i]);
    }
    for (std::size_t i = begin; i < begin + row; ++i) result.data[i] /= total;
  }
  return {result};
}

/// The gradients of a layer whose output is its input, normalised per row, times a weight, in
/// spirit: one that keeps the rows, and one that sums over them. Also the rows' means.
inline std::vector<Array> row_norm_backward(const LocalCall& call) {
  const Array& x = call.inputs[0];
  const Array& grad = call.inputs[1];
  Array grad_x = x;
  Array grad_weight({x.shape[1]});
  Array mean({x.shape[0], 1});
  for_each_index(x.shape, [&](const Shape& at) {
    mean.at({at[0], 0}) += x.at(at) / static_cast<double>(x.shape[1]);
  });
  for_each_index(x.shape, [&](const Shape& at) {
    grad_x.at(at) = grad.at(at) * mean.at({at[0], 0});
    grad_weight.at({at[1]}) += grad.at(at) * (x.at(at) - mean.at({at[0], 0}));
  });
  return {grad_x, grad_weight, mean};
}

/// Rows of a table by their numbers; rows that are elsewhere count as zero.
inline std::vector<Array> embedding(const LocalCall& call) {
  const Array& table = call.inputs[0];
  const Array& numbers = call.inputs[1];
  const auto rows = held_by(call.parts[0])[0];
  Shape shape = numbers.shape;
  shape.push_back(table.shape[1]);
  Array result(shape);
  for_each_index(shape, [&](const Shape& index) {
    const auto number =
        static_cast<std::int64_t>(numbers.at(Shape(index.begin(), index.end() - 1)));
    const auto row = std::find(rows.begin(), rows.end(), number);
    if (row != rows.end()) result.at(index) = table.at({row - rows.begin(), index.back()});
  });
  return {result};
}

/// One vector above the other, as often as the output asks for.
inline std::vector<Array> expand_rows(const LocalCall& call) {
  Array result(call.output_shapes[0]);
  for_each_index(result.shape,
                 [&](const Shape& at) { result.at(at) = call.inputs[0].at({at[1]}); });
  return {result};
}

/// Two matrices, one above the other.
inline std::vector<Array> concatenate_rows(const LocalCall& call) {
  const Array& top = call.inputs[0];
  Array result({top.shape[0] + call.inputs[1].shape[0], top.shape[1]});
  for_each_index(result.shape, [&](const Shape& at) {
    result.at(at) =
        at[0] < top.shape[0] ? top.at(at) : call.inputs[1].at({at[0] - top.shape[0], at[1]});
  });
  return {result};
}

}  // namespace tessera::test
