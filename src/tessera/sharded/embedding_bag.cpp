#include "tessera/sharded/embedding_bag.h"

#include <algorithm>
#include <optional>

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/embedding_bag.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/embedding.h>

#include "tessera/base/check.h"
#include "tessera/sharded/parameter_change.h"
#include "tessera/sharded/state.h"
#include "tessera/tensor/dtensor.h"

namespace tessera::sharded {
namespace {

using torch::nn::AnyValue;
using torch::nn::EmbeddingBagImpl;
using torch::nn::EmbeddingBagOptions;

bool is_mode(const EmbeddingBagOptions& options, const char* name) {
  return torch::enumtype::get_enum_name(options.mode()) == name;
}

/// The number that aten knows a mode by.
std::int64_t mode_number(const EmbeddingBagOptions& options) {
  if (is_mode(options, "kSum")) return 0;
  return is_mode(options, "kMean") ? 1 : 2;
}

/// Arguments may be plain, the same on all ranks, or DTensors.
at::Tensor whole(const at::Tensor& tensor) {
  return tensor.defined() && is_dtensor(tensor) ? full_tensor(tensor) : tensor;
}

/// The same for the factors of the rows. Every rank knows the gradient of its own part of the table
/// only; the parts are added up.
at::Tensor whole_factors(const at::Tensor& tensor, const DeviceMesh& mesh) {
  if (!tensor.defined() || !tensor.requires_grad()) return whole(tensor);
  const at::Tensor known = is_dtensor(tensor) ? tensor : from_local(tensor, mesh, {Replicate()});
  return to_local(redistribute(known, mesh, {Replicate()}),
                  {.grad_placements = Placements{Partial()}});
}

/// The bags of a call in one form: flat indices, where each bag begins, and where the last one ends.
struct Bags {
  at::Tensor indices;
  /// One more than there are bags.
  at::Tensor offsets;
  at::Tensor weights;

  Bags(const at::Tensor& input, const at::Tensor& its_offsets, const at::Tensor& its_weights,
       bool include_last_offset) {
    indices = input.reshape({-1});
    weights = its_weights.defined() ? its_weights.reshape({-1}) : its_weights;
    if (input.dim() == 2) {
      TESSERA_CHECK(!its_offsets.defined(),
                    "EmbeddingBag: offsets given with a 2-dim input, whose rows are the bags");
      offsets = at::arange(input.size(0) + 1, indices.options()) * input.size(1);
    } else {
      TESSERA_CHECK(input.dim() == 1 && its_offsets.defined() && its_offsets.dim() == 1,
                    "EmbeddingBag: an input of ", input.dim(),
                    " dims given; pass a 2-dim one, or a 1-dim one with 1-dim offsets");
      const auto end = at::arange(indices.numel(), indices.numel() + 1, its_offsets.options());
      offsets = include_last_offset ? its_offsets : at::cat({its_offsets, end});
    }
    check(input, its_weights);
  }

  /// Here and not in the op, which a rank without rows does not call.
  void check(const at::Tensor& input, const at::Tensor& its_weights) const {
    TESSERA_CHECK(!its_weights.defined() || its_weights.sizes() == input.sizes(),
                  "EmbeddingBag: per_sample_weights of shape [", joined(its_weights.sizes(), ","),
                  "] given for an input of shape [", joined(input.sizes(), ","), ']');
    TESSERA_CHECK(offsets.numel() >= 1, "EmbeddingBag: no offsets given with include_last_offset");
    const auto steps = offsets.diff();
    TESSERA_CHECK(offsets[0].item<std::int64_t>() == 0 &&
                      offsets[-1].item<std::int64_t>() == indices.numel() &&
                      steps.ge(0).all().item<bool>(),
                  "EmbeddingBag: offsets given that do not go up from 0 to ", indices.numel(),
                  ", the number of indices");
  }
  [[nodiscard]] std::int64_t count() const { return offsets.numel() - 1; }
  /// The results of a rank without a part of the table: so that it goes back through the graph as the
  /// others do, they depend on what those depend on.
  [[nodiscard]] at::Tensor without(const at::Tensor& table) const {
    auto zeros = at::zeros({count(), table.size(1)}, table.options().requires_grad(false));
    if (weights.defined()) zeros = zeros + weights.narrow(0, 0, 0).sum();
    return zeros + table.sum();
  }
  /// How many elements each bag has that count.
  [[nodiscard]] at::Tensor sizes(const at::Tensor& counts) const {
    const auto bag = at::repeat_interleave(offsets.diff().to(at::kLong));
    return at::zeros({count()}, counts.options()).index_add(0, bag, counts);
  }
};

/// What stands in for an EmbeddingBag.
class ShardedEmbeddingBagImpl : public torch::nn::Module {
 public:
  ShardedEmbeddingBagImpl(const at::Tensor& its_weight, EmbeddingBagOptions options)
      : weight(register_parameter("weight", its_weight, its_weight.requires_grad())),
        options_(std::move(options)) {}

  at::Tensor forward(const at::Tensor& input, const at::Tensor& offsets,
                     const at::Tensor& per_sample_weights) {
    TESSERA_CHECK(!per_sample_weights.defined() || is_mode(options_, "kSum"),
                  "EmbeddingBag: per_sample_weights given to one of another mode than sum");
    const Bags bags(whole(input), whole(offsets),
                    whole_factors(per_sample_weights, mesh_of(weight)),
                    options_.include_last_offset());
    check_indices(bags.indices);
    return std::get<Shard>(placements_of(weight)[0]).dim == 0 ? by_rows(bags) : by_columns(bags);
  }

  void pretty_print(std::ostream& stream) const override {
    stream << "tessera::sharded::EmbeddingBag(" << layout_of(weight) << ')';
  }

  at::Tensor weight;

 protected:
  FORWARD_HAS_DEFAULT_ARGS({1, AnyValue(at::Tensor())}, {2, AnyValue(at::Tensor())})

 private:
  /// Adds up the rows that this rank has of every bag; the reduction adds up the ranks'.
  at::Tensor by_rows(const Bags& bags) const {
    const Extent own = own_rows();
    const at::Tensor table = to_local(weight, {.grad_placements = placements_of(weight)});
    at::Tensor counts = at::ones_like(bags.indices, table.options().requires_grad(false));
    if (const auto padding = padding_index()) {
      counts = counts * bags.indices.ne(*padding).to(counts.dtype());
    }
    const at::Tensor is_own =
        bags.indices.ge(own.begin).logical_and(bags.indices.lt(own.end())).to(counts.dtype());
    at::Tensor factors = counts * is_own;
    if (bags.weights.defined()) factors = factors * bags.weights;
    at::Tensor sums = own.size == 0 ? bags.without(table)
                                    : std::get<0>(at::embedding_bag(
                                          table, (bags.indices - own.begin).clamp(0, own.size - 1),
                                          bags.offsets, /*scale_grad_by_freq=*/false, /*mode=*/0,
                                          /*sparse=*/false, factors, /*include_last_offset=*/true));
    if (is_mode(options_, "kMean")) sums = sums / bags.sizes(counts).clamp_min(1).unsqueeze(1);
    const at::Tensor output = from_local(sums, mesh_of(weight), {Partial()});
    return redistribute(output, {Replicate()});
  }

  /// All of it for the columns that this rank has.
  at::Tensor by_columns(const Bags& bags) const {
    const at::Tensor table = to_local(weight, {.grad_placements = placements_of(weight)});
    const at::Tensor local =
        table.size(1) == 0
            ? bags.without(table)
            : std::get<0>(at::embedding_bag(table, bags.indices, bags.offsets,
                                            /*scale_grad_by_freq=*/false, mode_number(options_),
                                            /*sparse=*/false, bags.weights,
                                            /*include_last_offset=*/true, padding_index()));
    return from_local(local, mesh_of(weight), {Shard(1)},
                      {.shape = std::vector<std::int64_t>{bags.count(), weight.size(1)}});
  }

  /// A rank that has not the row would take it for another's, and all for nobody's.
  void check_indices(const at::Tensor& indices) const {
    if (indices.numel() == 0) return;
    const auto least = indices.min().item<std::int64_t>();
    const auto most = indices.max().item<std::int64_t>();
    TESSERA_CHECK(least >= 0 && most < weight.size(0), "EmbeddingBag: indices from ", least, " to ",
                  most, " given; the table has ", weight.size(0), " rows");
  }

  [[nodiscard]] Extent own_rows() const {
    const Layout& layout = layout_of(weight);
    const auto part = layout.part_of(mesh_of(weight).world().rank());
    const auto& rows = part->dims[0];
    return rows.empty() ? Extent{layout.shape()[0], 0} : rows.runs().front();
  }

  [[nodiscard]] std::optional<std::int64_t> padding_index() const {
    const auto& given = options_.padding_idx();
    if (!given.has_value()) return std::nullopt;
    return *given < 0 ? *given + weight.size(0) : *given;
  }

  EmbeddingBagOptions options_;
};

}  // namespace

std::string EmbeddingBagSharder::name() const { return concat("EmbeddingBagSharder(", spec_, ')'); }

void EmbeddingBagSharder::check(const torch::nn::Module& module, const Group& group) const {
  const auto* bag = dynamic_cast<const EmbeddingBagImpl*>(&module);
  TESSERA_CHECK(bag != nullptr, name(), ": a module ", module.name(),
                " given; it shards torch::nn::EmbeddingBag only");
  const EmbeddingBagOptions& options = bag->options;
  TESSERA_CHECK(
      !options.max_norm() && !options.sparse() && !options.scale_grad_by_freq(), name(),
      ": an EmbeddingBag with max_norm, sparse or scale_grad_by_freq given, which look at "
      "all of the table or of its gradient; make it without them");
  (void)detail::plan_change(name(), "weight", bag->weight, spec_, group);
  const bool by_rows = spec_.dim() == 0 || spec_.dim() == -2;
  TESSERA_CHECK(!by_rows || !is_mode(options, "kMax"), name(),
                ": an EmbeddingBag of mode max given, of which parts cannot be added up; shard it "
                "along dim 1");
  TESSERA_CHECK(std::ssize(spec_.placements()) == group.size(), name(), ": ",
                spec_.placements().size(), " chunks given for group ", group.name(), " of ",
                group.size(), " ranks; give one for each rank");
}

torch::nn::AnyModule EmbeddingBagSharder::shard(torch::nn::Module& module, std::int64_t src_rank,
                                                const Group& group) const {
  auto& bag = dynamic_cast<EmbeddingBagImpl&>(module);
  // In place, so that an optimizer that was made before goes on with the parameter.
  detail::apply(detail::plan_change(name(), "weight", bag.weight, spec_, group), src_rank, group);
  return torch::nn::AnyModule(std::make_shared<ShardedEmbeddingBagImpl>(bag.weight, bag.options));
}

}  // namespace tessera::sharded
