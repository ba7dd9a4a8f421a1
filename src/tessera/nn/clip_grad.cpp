#include "tessera/nn/clip_grad.h"

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>

#include "tessera/base/check.h"
#include "tessera/comm/collectives.h"
#include "tessera/comm/device_mesh.h"
#include "tessera/comm/recorder.h"
#include "tessera/tensor/dtensor.h"
#include "tessera/tensor/in_place.h"

namespace tessera::nn {
namespace {

constexpr const char* kClipGradNorm = "clip_grad_norm";

/// Adds up norms of parts: as sums of p-th powers, or as the greatest.
class NormSum {
 public:
  explicit NormSum(double p) : p_(p) {}

  void add(const at::Tensor& part) {
    if (part.numel() == 0) return;
    const at::Tensor values = part.is_complex() ? part.abs() : part;
    add_norm(at::linalg_vector_norm(values, p_, at::nullopt, false, at::kDouble).item<double>());
  }
  void add_norm(double norm) { add_value(is_greatest() ? norm : std::pow(norm, p_)); }
  void add_value(double value) { value_ = is_greatest() ? greater(value_, value) : value_ + value; }

  [[nodiscard]] double value() const { return value_; }
  [[nodiscard]] double norm() const { return is_greatest() ? value_ : std::pow(value_, 1 / p_); }
  [[nodiscard]] bool is_greatest() const { return std::isinf(p_); }
  [[nodiscard]] ReduceOp reduce_op() const { return is_greatest() ? ReduceOp::max : ReduceOp::sum; }

 private:
  /// Keeps what is no number, as libtorch does.
  static double greater(double a, double b) { return std::isnan(a) || a > b ? a : b; }

  double p_;
  double value_ = 0;
};

/// What the gradients on one mesh come to.
struct MeshShare {
  DeviceMesh mesh;
  /// Of gradients that every rank has all of.
  NormSum whole;
  /// Of this rank's parts of the others.
  NormSum spread;
  bool has_spread = false;

  [[nodiscard]] bool contains_this_rank() const {
    return mesh.shape().contains(mesh.world().rank());
  }
};

bool is_cut(const DeviceMesh& mesh, const Placements& placements) {
  for (std::size_t dim = 0; dim < placements.size(); ++dim) {
    if (is_sharded(placements[dim]) && mesh.size(static_cast<std::int64_t>(dim)) > 1) return true;
  }
  return false;
}

/// True on one of the ranks that hold the same elements.
bool is_first_copy(const DeviceMesh& mesh, const Placements& placements) {
  const auto coordinate = mesh.coordinate();
  for (std::size_t dim = 0; dim < placements.size(); ++dim) {
    if (is_replicate(placements[dim]) && (*coordinate)[dim] != 0) return false;
  }
  return true;
}

std::vector<at::Tensor> with_gradients(const std::vector<at::Tensor>& parameters) {
  std::unordered_set<const c10::TensorImpl*> seen;
  std::vector<at::Tensor> result;
  for (const auto& parameter : parameters) {
    TESSERA_CHECK(parameter.defined(), kClipGradNorm, ": an undefined tensor given");
    if (!parameter.grad().defined()) continue;
    if (seen.insert(parameter.unsafeGetTensorImpl()).second) result.push_back(parameter);
  }
  return result;
}

/// A norm is not linear, so contributions must be summed before.
void reduce_contributions(const at::Tensor& parameter) {
  const at::Tensor& gradient = parameter.grad();
  if (!is_dtensor(gradient)) return;
  Placements placements = placements_of(gradient);
  if (std::none_of(placements.begin(), placements.end(), is_partial)) return;
  const bool has_own = is_dtensor(parameter) && mesh_of(parameter) == mesh_of(gradient);
  for (std::size_t dim = 0; dim < placements.size(); ++dim) {
    if (!is_partial(placements[dim])) continue;
    const bool follows = has_own && !is_partial(placements_of(parameter)[dim]);
    placements[dim] = follows ? placements_of(parameter)[dim] : Placement(Replicate());
  }
  become(gradient, redistribute(gradient.detach(), placements));
}

void add_gradient(const at::Tensor& gradient, double p, std::vector<MeshShare>& shares) {
  const DeviceMesh& mesh = mesh_of(gradient);
  auto share = std::find_if(shares.begin(), shares.end(),
                            [&](const MeshShare& known) { return known.mesh == mesh; });
  if (share == shares.end()) {
    share = shares.insert(shares.end(), {mesh, NormSum(p), NormSum(p)});
  }
  const Placements& placements = placements_of(gradient);
  const bool cut = is_cut(mesh, placements);
  share->has_spread = share->has_spread || cut;
  if (!share->contains_this_rank()) return;
  if (!cut) share->whole.add(to_local(gradient));
  if (cut && is_first_copy(mesh, placements)) share->spread.add(to_local(gradient));
}

double reduced(double value, ReduceOp op, const Group& group) {
  return all_reduce(at::scalar_tensor(value, at::kDouble), op, group).item<double>();
}

/// The values of all meshes, known to this rank or not.
double over_meshes(const std::vector<MeshShare>& shares, const GradNormOptions& options) {
  NormSum total(options.norm_type);
  for (const auto& share : shares) {
    TESSERA_CHECK(share.contains_this_rank() || options.group, kClipGradNorm, ": a parameter on ",
                  share.mesh, " given, which rank ", share.mesh.world().rank(),
                  " is not part of; pass the group of all ranks that call, ",
                  "{.group = world.group()}");
    if (!share.contains_this_rank()) continue;
    NormSum own = share.whole;
    if (share.has_spread) {
      own.add_value(reduced(share.spread.value(), own.reduce_op(), share.mesh.group()));
    }
    const bool speaks = share.mesh.world().rank() == share.mesh.shape().rank_at(std::int64_t{0});
    if (!options.group || speaks) total.add_value(own.value());
  }
  return options.group ? reduced(total.value(), total.reduce_op(), *options.group) : total.value();
}

void check_options(const GradNormOptions& options) {
  TESSERA_CHECK(options.norm_type >= 0, kClipGradNorm, ": norm_type ", options.norm_type,
                " given; allowed are 0, positive numbers and infinity");
}

double norm_of(const std::vector<at::Tensor>& parameters, const GradNormOptions& options) {
  if (options.norm_type == 0) return static_cast<double>(parameters.size());
  std::vector<MeshShare> shares;
  NormSum total(options.norm_type);
  for (const auto& parameter : parameters) {
    reduce_contributions(parameter);
    const at::Tensor& gradient = parameter.grad();
    if (is_dtensor(gradient)) {
      add_gradient(gradient, options.norm_type, shares);
    } else {
      total.add(gradient);
    }
  }
  total.add_value(over_meshes(shares, options));
  return total.norm();
}

}  // namespace

double grad_norm(const std::vector<at::Tensor>& parameters, const GradNormOptions& options) {
  check_options(options);
  const at::NoGradGuard no_history;
  const tessera::detail::CauseScope cause(kClipGradNorm);
  const double norm = norm_of(with_gradients(parameters), options);
  TESSERA_CHECK(!options.error_if_nonfinite || std::isfinite(norm), kClipGradNorm,
                ": The total norm of order ", options.norm_type,
                " for gradients from `parameters` ", "is non-finite (", norm,
                "), so it cannot be clipped; leave out error_if_nonfinite ",
                "to scale the gradients with it anyway");
  return norm;
}

double clip_grad_norm(const std::vector<at::Tensor>& parameters, double max_norm,
                      const GradNormOptions& options) {
  const double norm = grad_norm(parameters, options);
  const double scale = max_norm / (norm + 1e-6);
  if (scale >= 1) return norm;
  const at::NoGradGuard no_history;
  for (const auto& parameter : with_gradients(parameters)) parameter.mutable_grad().mul_(scale);
  return norm;
}

}  // namespace tessera::nn
