#include <algorithm>

#include "tessera/tensor/meta_call.h"
#include "tessera/tensor/op_call.h"
#include "tessera/tensor/rule_text.h"
#include "tessera/tensor/rules.h"

namespace tessera::detail {
namespace {

// Linear algebra: matrices and vectors are whole, and whatever dims stand in front of them are
// independent samples, which are broadcast against each other.

/// How many dims of an input are its matrix or vector.
std::int64_t inner_dims(const OpCall& call, std::size_t input) {
  const std::string& name = call.traits().arguments[call.inputs()[input].argument].name;
  if (name == "pivots" || name == "LU_pivots" || name == "tau") return 1;
  // Others call it tau.
  if (name == "input2" && call.traits().base_name == "ormqr") return 1;
  if (name == "atol" || name == "rtol") return 0;
  return 2;
}

/// Whether B holds one vector per matrix of A. libtorch decides by the shapes.
bool is_vector_of(const Shape& a, const Shape& b) {
  return b.size() == 1 || (a.size() == b.size() + 1 && std::equal(b.begin(), b.end(), a.begin()));
}

/// The inner dims of all inputs; nothing where parts could be read otherwise than the whole.
std::optional<std::vector<std::int64_t>> inner_dims(const OpCall& call) {
  std::vector<std::int64_t> inner;
  for (std::size_t i = 0; i < call.inputs().size(); ++i) inner.push_back(inner_dims(call, i));
  if (call.traits().base_name == "_linalg_solve_ex" && call.inputs().size() == 2) {
    if (is_vector_of(call.shape(0), call.shape(1))) {
      inner[1] = 1;
    } else if (call.ndim(0) != call.ndim(1)) {
      return std::nullopt;
    }
  }
  for (std::size_t i = 0; i < inner.size(); ++i) {
    if (call.ndim(i) < inner[i]) return std::nullopt;
  }
  return inner;
}

/// The sizes in front of the inner dims, broadcast.
std::optional<Shape> sample_shape(const OpCall& call, const std::vector<std::int64_t>& inner) {
  Shape shape;
  for (std::size_t i = 0; i < inner.size(); ++i) {
    const auto count = static_cast<std::size_t>(call.ndim(i) - inner[i]);
    if (count > shape.size()) shape.insert(shape.begin(), count - shape.size(), 1);
    for (std::size_t d = 0; d < count; ++d) {
      auto& size = shape[shape.size() - count + d];
      const std::int64_t own = call.shape(i)[d];
      if (size != 1 && own != 1 && own != size) return std::nullopt;
      if (own != 1) size = own;
    }
  }
  return shape;
}

/// Results that nobody asked for are undefined, or empty.
bool is_asked_for(const at::Tensor& result) {
  return result.defined() && (result.dim() != 1 || result.numel() != 0);
}

/// Writes the tensors of one call.
class SampleText {
 public:
  explicit SampleText(const Shape& samples) : samples_(samples), names_("b", std::ssize(samples)) {}

  std::string input(const at::Tensor& tensor, std::int64_t inner) {
    Dims dims;
    const std::int64_t count = tensor.dim() - inner;
    for (std::int64_t d = 0; d < count; ++d) {
      const std::int64_t at = names_.size() - count + d;
      const bool follows = tensor.size(d) == samples_[static_cast<std::size_t>(at)];
      dims.push_back(follows ? names_[at] : "1");
    }
    return with_inner(std::move(dims), tensor, /*is_output=*/false);
  }

  /// Nothing when the samples do not stand in front of the result's other dims.
  std::optional<std::string> output(const at::Tensor& tensor) {
    if (!is_asked_for(tensor)) return names_.text();
    if (tensor.dim() < names_.size() ||
        !std::equal(samples_.begin(), samples_.end(), tensor.sizes().begin())) {
      return std::nullopt;
    }
    return with_inner(names_, tensor, true);
  }

  [[nodiscard]] const std::vector<std::string>& whole() const { return whole_; }
  [[nodiscard]] const std::vector<FactorSize>& sizes() const { return sizes_; }

 private:
  std::string with_inner(Dims dims, const at::Tensor& tensor, bool is_output) {
    for (std::int64_t d = dims.size(); d < tensor.dim(); ++d) {
      whole_.push_back(concat("w", whole_.size()));
      dims.push_back(whole_.back());
      if (is_output) sizes_.push_back({whole_.back(), tensor.size(d)});
    }
    return dims.text();
  }

  const Shape& samples_;
  Dims names_;
  std::vector<std::string> whole_;
  std::vector<FactorSize> sizes_;
};

std::optional<OpDecision> decide_batched(const OpCall& call) {
  const auto results = run_on_meta(call);
  const auto inner = inner_dims(call);
  if (!results || !inner) return std::nullopt;
  const auto samples = sample_shape(call, *inner);
  // A single matrix is whole, whatever is done with it.
  if (!samples || samples->empty()) return std::nullopt;
  SampleText text(*samples);
  std::vector<std::string> inputs;
  for (std::size_t i = 0; i < inner->size(); ++i) {
    inputs.push_back(text.input(call.inputs()[i].tensor, (*inner)[i]));
  }
  std::vector<std::string> outputs;
  for (const auto& result : *results) {
    const auto output = text.output(result);
    if (!output) return std::nullopt;
    outputs.push_back(*output);
  }
  const std::string clause =
      text.whole().empty() ? "" : concat(" | ", joined(text.whole(), " "), ": whole");
  auto decision = decide(call,
                         OpRule::parse(concat(call.traits().base_name, ": ", joined(inputs), " -> ",
                                              joined(outputs), clause)),
                         text.sizes());
  if (!decision) return std::nullopt;
  for (std::size_t i = 0; i < results->size(); ++i) {
    const at::Tensor& result = (*results)[i];
    if (result.defined() && !is_asked_for(result)) decision->outputs[i] = call.replicated(result);
  }
  return skipping_empty(std::move(decision), call, *results);
}

}  // namespace

void add_batched_rules(RuleTable& table) {
  for (const auto* name : {"_linalg_det",
                           "_linalg_eigh",
                           "_linalg_slogdet",
                           "_linalg_solve_ex",
                           "_linalg_svd",
                           "cholesky",
                           "cholesky_inverse",
                           "cholesky_solve",
                           "geqrf",
                           "linalg_cholesky_ex",
                           "linalg_eig",
                           "linalg_householder_product",
                           "linalg_inv_ex",
                           "linalg_ldl_factor_ex",
                           "linalg_ldl_solve",
                           "linalg_lu",
                           "linalg_lu_factor_ex",
                           "linalg_lu_solve",
                           "linalg_matrix_exp",
                           "linalg_pinv",
                           "linalg_qr",
                           "linalg_solve_triangular",
                           "lu_unpack",
                           "ormqr",
                           "triangular_solve"}) {
    table.emplace(name, &decide_batched);
  }
}

}  // namespace tessera::detail
