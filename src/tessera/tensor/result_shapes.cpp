#include "tessera/tensor/result_shapes.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include <ATen/ExpandUtils.h>
#include <ATen/ops/empty.h>

namespace tessera::detail {
namespace {

/// A result: its shape, and its dtype where that is not the first input's.
struct Stated {
  Shape shape = {};
  std::optional<at::ScalarType> dtype = std::nullopt;
};

using Results = std::vector<Stated>;
using ShapeFunction = Results (*)(const OpCall& call);

Shape shape_of(const OpCall& call, std::string_view argument) {
  return call.argument(argument).toTensor().sizes().vec();
}

/// One number for all dims, or one for each.
std::vector<std::int64_t> numbers(const OpCall& call, std::string_view argument,
                                  std::size_t count) {
  auto given = call.argument(argument).toIntVector();
  if (given.size() == 1) given.resize(count, given.front());
  TORCH_CHECK(given.size() == count, argument, " must have ", count, " numbers");
  return given;
}

/// The result has the shape of an argument.
template <const char* argument>
Results like(const OpCall& call) {
  return {{.shape = shape_of(call, argument)}};
}

constexpr char kSelf[] = "self";
constexpr char kInput[] = "input";
constexpr char kThirdInput[] = "input3";

/// The last dims get the sizes in `output_size`.
Results to_output_size(const OpCall& call) {
  Shape shape = call.shape(0);
  const auto sizes = call.argument("output_size").toIntVector();
  TORCH_CHECK(sizes.size() <= shape.size());
  std::copy(sizes.begin(), sizes.end(), shape.end() - std::ssize(sizes));
  return {{.shape = std::move(shape)}};
}

/// How many windows fit into a dim.
struct Windows {
  std::int64_t kernel;
  std::int64_t stride;
  std::int64_t padding;
  std::int64_t dilation;
  bool is_ceil = false;

  [[nodiscard]] std::int64_t count(std::int64_t size) const {
    TORCH_CHECK(stride > 0);
    const std::int64_t room = size + 2 * padding - dilation * (kernel - 1) - 1;
    if (room < 0) return -1;
    std::int64_t windows = (room + (is_ceil ? stride - 1 : 0)) / stride + 1;
    // The last window must begin inside.
    if (is_ceil && (windows - 1) * stride >= size + padding) --windows;
    return windows;
  }
};

Results max_pool3d(const OpCall& call) {
  Shape shape = call.shape(0);
  TORCH_CHECK(shape.size() >= 3);
  const auto kernel = numbers(call, "kernel_size", 3);
  const auto stride =
      call.argument("stride").toIntVector().empty() ? kernel : numbers(call, "stride", 3);
  const auto padding = numbers(call, "padding", 3);
  const auto dilation = numbers(call, "dilation", 3);
  const bool is_ceil = call.argument("ceil_mode").toBool();
  for (std::size_t i = 0; i < 3; ++i) {
    auto& size = shape[shape.size() - 3 + i];
    size = Windows{kernel[i], stride[i], padding[i], dilation[i], is_ceil}.count(size);
  }
  return {{.shape = shape}, {.shape = shape, .dtype = at::kLong}};
}

Results reflection_pad2d(const OpCall& call) {
  Shape shape = call.shape(0);
  const auto padding = numbers(call, "padding", 4);
  TORCH_CHECK(shape.size() >= 2);
  shape[shape.size() - 1] += padding[0] + padding[1];
  shape[shape.size() - 2] += padding[2] + padding[3];
  return {{.shape = std::move(shape)}};
}

Results im2col(const OpCall& call) {
  const Shape shape = call.shape(0);
  TORCH_CHECK(shape.size() == 4);
  const auto kernel = numbers(call, "kernel_size", 2);
  const auto stride = numbers(call, "stride", 2);
  const auto padding = numbers(call, "padding", 2);
  const auto dilation = numbers(call, "dilation", 2);
  const auto count = [&](std::size_t i) {
    return Windows{kernel[i], stride[i], padding[i], dilation[i]}.count(shape[2 + i]);
  };
  TORCH_CHECK(count(0) > 0 && count(1) > 0);
  return {{.shape = {shape[0], shape[1] * kernel[0] * kernel[1], count(0) * count(1)}}};
}

Results col2im(const OpCall& call) {
  const Shape shape = call.shape(0);
  TORCH_CHECK(shape.size() == 3);
  const auto kernel = numbers(call, "kernel_size", 2);
  const auto size = numbers(call, "output_size", 2);
  return {{.shape = {shape[0], shape[1] / (kernel[0] * kernel[1]), size[0], size[1]}}};
}

Results grid_sampler(const OpCall& call) {
  Shape shape = call.shape(0);
  const Shape grid = call.shape(1);
  TORCH_CHECK(shape.size() == grid.size() && grid.size() > 2);
  std::copy(grid.begin() + 1, grid.end() - 1, shape.begin() + 2);
  return {{.shape = std::move(shape)}};
}

Results grid_sampler_backward(const OpCall& call) {
  return {{.shape = shape_of(call, "input")}, {.shape = shape_of(call, "grid")}};
}

Results geqrf(const OpCall& call) {
  const Shape shape = call.shape(0);
  TORCH_CHECK(shape.size() >= 2);
  Shape tau(shape.begin(), shape.end() - 1);
  tau.back() = std::min(shape[shape.size() - 2], shape.back());
  return {{.shape = shape}, {.shape = std::move(tau)}};
}

Results eigenvalues(const OpCall& call) {
  const Shape shape = call.shape(0);
  TORCH_CHECK(shape.size() >= 2);
  const auto dtype = c10::toComplexType(call.inputs()[0].tensor.scalar_type());
  return {{.shape = Shape(shape.begin(), shape.end() - 1), .dtype = dtype},
          {.shape = shape, .dtype = dtype}};
}

/// cholesky_solve(self, input2), without broadcasting.
Results cholesky_solve(const OpCall& call) {
  const Shape own = call.shape(0);
  const Shape other = call.shape(1);
  TORCH_CHECK(own.size() == other.size() && own.size() >= 2);
  TORCH_CHECK(std::equal(own.begin(), own.end() - 1, other.begin()));
  return {{.shape = own}};
}

/// linalg_solve_triangular(self, B): samples are broadcast.
Results solve_triangular(const OpCall& call) {
  const auto& a = call.inputs()[0].tensor;
  const auto& b = call.inputs()[1].tensor;
  TORCH_CHECK(a.dim() >= 2 && b.dim() >= 2);
  const auto samples = [](const at::Tensor& tensor) {
    return tensor.sizes().slice(0, static_cast<std::size_t>(tensor.dim() - 2));
  };
  const auto both = at::infer_size_dimvector(samples(a), samples(b));
  Shape shape(both.begin(), both.end());
  shape.insert(shape.end(), {b.size(-2), b.size(-1)});
  return {{.shape = std::move(shape)}};
}

Results pseudo_inverse(const OpCall& call) {
  Shape shape = call.shape(0);
  TORCH_CHECK(shape.size() >= 2);
  for (std::size_t i = 1; i < call.inputs().size(); ++i) {
    TORCH_CHECK(call.shape(i).size() + 2 <= shape.size());
  }
  std::swap(shape[shape.size() - 1], shape[shape.size() - 2]);
  return {{.shape = std::move(shape)}};
}

Results convolution(const OpCall& call) {
  const Shape input = call.shape(0);
  const Shape weight = call.shape(1);
  TORCH_CHECK(input.size() == weight.size() && input.size() > 2);
  const std::size_t spatial = input.size() - 2;
  const auto stride = numbers(call, "stride", spatial);
  const auto padding = numbers(call, "padding", spatial);
  const auto dilation = numbers(call, "dilation", spatial);
  const auto added = numbers(call, "output_padding", spatial);
  const bool is_transposed = call.argument("transposed").toBool();
  Shape shape = {input[0], is_transposed ? weight[1] * call.integer("groups") : weight[0]};
  for (std::size_t i = 0; i < spatial; ++i) {
    const std::int64_t size = input[2 + i];
    shape.push_back(is_transposed
                        ? (size - 1) * stride[i] - 2 * padding[i] +
                              dilation[i] * (weight[2 + i] - 1) + added[i] + 1
                        : Windows{weight[2 + i], stride[i], padding[i], dilation[i]}.count(size));
  }
  return {{.shape = std::move(shape)}};
}

const std::unordered_map<std::string_view, ShapeFunction>& stated() {
  static const std::unordered_map<std::string_view, ShapeFunction> table = {
      {"_adaptive_avg_pool2d", &to_output_size},
      {"_adaptive_avg_pool2d_backward", &like<kSelf>},
      {"_adaptive_avg_pool3d", &to_output_size},
      {"_adaptive_avg_pool3d_backward", &like<kSelf>},
      {"channel_shuffle", &like<kSelf>},
      {"cholesky", &like<kSelf>},
      {"cholesky_inverse", &like<kSelf>},
      {"cholesky_solve", &cholesky_solve},
      {"col2im", &col2im},
      {"convolution", &convolution},
      {"geqrf", &geqrf},
      {"grid_sampler_2d", &grid_sampler},
      {"grid_sampler_2d_backward", &grid_sampler_backward},
      {"grid_sampler_3d", &grid_sampler},
      {"grid_sampler_3d_backward", &grid_sampler_backward},
      {"im2col", &im2col},
      {"linalg_eig", &eigenvalues},
      {"linalg_householder_product", &like<kInput>},
      {"linalg_matrix_exp", &like<kSelf>},
      {"linalg_pinv", &pseudo_inverse},
      {"linalg_solve_triangular", &solve_triangular},
      {"max_pool3d_with_indices", &max_pool3d},
      {"max_pool3d_with_indices_backward", &like<kSelf>},
      {"max_unpool2d", &to_output_size},
      {"max_unpool3d", &to_output_size},
      {"ormqr", &like<kThirdInput>},
      {"reflection_pad2d", &reflection_pad2d},
      {"reflection_pad2d_backward", &like<kSelf>},
      {"replication_pad2d_backward", &like<kSelf>},
      {"replication_pad3d_backward", &like<kSelf>},
  };
  return table;
}

}  // namespace

std::optional<std::vector<at::Tensor>> stated_results(const OpCall& call) {
  const auto found = stated().find(call.traits().base_name);
  if (found == stated().end() || call.inputs().empty()) return std::nullopt;
  const auto options = call.inputs()[0].tensor.options().device(at::kMeta).requires_grad(false);
  std::vector<at::Tensor> results;
  try {
    for (const auto& [shape, dtype] : found->second(call)) {
      const auto is_negative = [](std::int64_t size) { return size < 0; };
      if (std::any_of(shape.begin(), shape.end(), is_negative)) return std::nullopt;
      results.push_back(at::empty(shape, dtype ? options.dtype(*dtype) : options));
    }
  } catch (const c10::Error&) {
    return std::nullopt;
  }
  return results;
}

}  // namespace tessera::detail
