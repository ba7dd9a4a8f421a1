#include <algorithm>
#include <sstream>

#include <torch/torch.h>

#include "tensor/op_outcome.h"
#include "tessera/base/concat.h"
#include "tessera/tensor/dtensor.h"

namespace tessera::test {
namespace {

/// Whether anything in a case is computed in single precision.
bool is_single(const Case& tested, const at::Tensor& expected) {
  const auto is_float = [](const at::Tensor& tensor) {
    return tensor.defined() &&
           (tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kComplexFloat);
  };
  const auto& arguments = tested.arguments.tensors;
  return is_float(expected) || std::any_of(arguments.begin(), arguments.end(), is_float);
}

bool is_close(const at::Tensor& actual, const at::Tensor& expected, const Case& tested) {
  if (!expected.is_floating_point() && !expected.is_complex()) {
    return torch::equal(actual, expected);
  }
  double tolerance = is_single(tested, expected) ? 3e-4 : 1e-8;
  if (tested.entry->check == OpCheck::rough) tolerance = 0.05;
  return torch::allclose(actual, expected, tolerance, tolerance, true);
}

std::string describe(const at::Tensor& tensor) {
  if (!tensor.defined()) return "undefined";
  if (!is_dtensor(tensor)) return concat('[', joined(tensor.sizes(), ","), "] (plain)");
  const std::string text = to_string(tensor);
  return text.substr(0, text.find(", rank"));
}

/// Compares what one rank got; says what is wrong, or nothing.
class Comparison {
 public:
  explicit Comparison(const Case& tested) : case_(tested) {}

  void compare(const char* what, const std::vector<at::Tensor>& actual,
               const std::vector<at::Tensor>& expected) {
    if (actual.size() != expected.size()) {
      text_ += concat(what, ": ", actual.size(), " tensors instead of ", expected.size(), '\n');
      return;
    }
    for (std::size_t i = 0; i < actual.size(); ++i)
      compare_one(concat(what, ' ', i), actual[i], expected[i]);
  }

  /// Gradients that `backward` accumulated are placed like their leaves.
  void compare_layouts(const std::vector<at::Tensor>& leaves) {
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      if (!leaves[i].defined() || !leaves[i].grad().defined()) continue;
      // Zeros that libtorch makes where no gradient depends on the arguments.
      if (!is_dtensor(leaves[i].grad())) continue;
      Placements wanted = placements_of(leaves[i]);
      for (auto& placement : wanted) {
        if (is_partial(placement)) placement = Replicate();
      }
      if (placements_of(leaves[i].grad()) != wanted) {
        text_ += concat("gradient of argument ", i, " is ", describe(leaves[i].grad()),
                        ", the leaf is ", describe(leaves[i]), '\n');
      }
    }
  }

  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  void compare_one(const std::string& what, const at::Tensor& actual, const at::Tensor& expected) {
    if (actual.defined() != expected.defined()) {
      text_ += concat(what, ": ", describe(actual), " instead of ", describe(expected), '\n');
      return;
    }
    if (!actual.defined()) return;
    if (!is_dtensor(actual)) {
      // Of a gradient that is 0 whatever the arguments are, see docs/dtensor.md.
      const bool is_zero = actual.sizes() == expected.sizes() &&
                           (expected == 0).all().item<bool>() &&
                           torch::equal(at::zeros_like(expected) + actual, expected);
      if (!is_zero) text_ += concat(what, " is a plain tensor\n");
      return;
    }
    const at::NoGradGuard no_history;
    const at::Tensor whole = full_tensor(actual);
    const auto position = mesh_of(actual).shape().position_of(mesh_of(actual).world().rank());
    if (actual.sizes() != expected.sizes() || whole.sizes() != expected.sizes() ||
        actual.scalar_type() != expected.scalar_type() ||
        to_local(actual).sizes() != at::IntArrayRef(layout_of(actual).local_shape(*position))) {
      text_ += concat(what, ": ", describe(actual), " of ", actual.scalar_type(), " instead of ",
                      describe(expected), " of ", expected.scalar_type(), '\n');
      return;
    }
    if (case_.entry->check == OpCheck::shapes || is_close(whole, expected, case_)) return;
    std::ostringstream values;
    values << what << " is " << describe(actual) << "\n"
           << whole << "\ninstead of\n"
           << expected << "\n";
    text_ += values.str();
  }

  const Case& case_;
  std::string text_;
};

}  // namespace

std::string run_case(const Case& tested, const DeviceMesh& mesh) {
  auto leaves = distributed_leaves(tested, mesh);
  const Outcome outcome = distributed_outcome(tested, mesh, leaves);
  if (tested.expected.error) {
    return concat("the plain call throws: ", *tested.expected.error, "\nthis one does not\n");
  }
  Comparison comparison(tested);
  comparison.compare("result", outcome.results, tested.expected.results);
  comparison.compare("gradient", outcome.gradients, tested.expected.gradients);
  comparison.compare("second gradient", outcome.second, tested.expected.second);
  comparison.compare_layouts(leaves);
  return comparison.text();
}

std::string describe_case(const Case& tested) {
  const auto sizes = mesh_sizes(tested.ranks)[tested.mesh];
  std::string text = concat("TESSERA_OP_CASE=", tested.id, " on mesh [", joined(sizes, ","), "]");
  const auto all = stored(tested);
  for (std::size_t i = 0; i < all.size(); ++i) {
    text += concat("\n  tensor ", i, ": ");
    if (!all[i].defined()) {
      text += "undefined";
      continue;
    }
    text += concat(all[i].scalar_type(), '[', joined(all[i].sizes(), ","), ']',
                   to_string(tested.layouts[i].placements),
                   tested.layouts[i].is_transposed ? " transposed" : "",
                   tested.layouts[i].is_scattered ? " scattered" : "");
  }
  if (!tested.arguments.numbers.empty()) {
    text += concat("\n  numbers: ", joined(tested.arguments.numbers));
  }
  return text + (tested.twice ? "\n  differentiated twice\n" : "\n");
}

}  // namespace tessera::test
