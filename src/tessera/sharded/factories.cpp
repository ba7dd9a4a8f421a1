#include "tessera/sharded/factories.h"

#include <functional>

#include <ATen/ops/full.h>
#include <c10/core/GradMode.h>

#include "tessera/base/check.h"
#include "tessera/comm/exchange_boxes.h"
#include "tessera/comm/world.h"
#include "tessera/sharded/state.h"
#include "tessera/tensor/random_stream.h"

namespace tessera::sharded {
namespace {

/// Gives a new shard its values.
using Fill = std::function<void(at::Tensor& piece, const Box& box)>;

ShardedTensor make_filled(const char* function, const ShardingSpec& spec,
                          const std::vector<std::int64_t>& sizes, at::ScalarType dtype,
                          const at::TensorOptions& options, const std::optional<Group>& its_group,
                          const Fill& fill) {
  const Group group = detail::group_or_current(its_group);
  ShardedTensorMetadata metadata{
      {}, sizes, {.dtype = dtype, .requires_grad = options.requires_grad()}};
  const std::int64_t rank = group.world().rank();
  std::vector<at::Tensor> pieces;
  detail::Agreement agreement(function, group);
  agreement.require_no_throw([&] {
    for (const auto size : sizes) {
      TESSERA_CHECK(size >= 0, function, ": sizes [", joined(sizes, ","),
                    "] given; they must be >= 0");
    }
    const auto shards = build_metadata(spec, sizes);
    metadata.shards = detail::checked_shards(function, spec, sizes, group,
                                             shards.front().placement.device_type());
    TESSERA_CHECK(
        !metadata.properties.requires_grad || at::isFloatingType(dtype) || at::isComplexType(dtype),
        function, ": requires_grad given for ", c10::getDtypeNames(dtype).first,
        "; only floating and complex tensors can require gradients");
    // Here, so that what one rank has no device or memory for is an error on all of them.
    pieces =
        tessera::detail::new_pieces(box_map(metadata.shards, sizes), rank,
                                    detail::shard_options(metadata.properties, metadata.shards));
  });
  agreement.same("sharding_spec", spec);
  agreement.same("sizes", concat('[', joined(sizes, ","), ']'));
  agreement.same("properties", metadata.properties);
  agreement.meet();
  const auto held = box_map(metadata.shards, sizes).held_by(rank);
  {
    const at::NoGradGuard no_history;
    for (std::size_t i = 0; i < pieces.size(); ++i) fill(pieces[i], held[i]);
  }
  return detail::make_sharded(group, spec, std::move(metadata), std::move(pieces), true);
}

at::ScalarType dtype_or_default(const at::TensorOptions& options) {
  return c10::typeMetaToScalarType(options.dtype());
}

/// Values that are drawn by the element's index in the whole tensor.
Fill random_fill(const std::vector<std::int64_t>& sizes,
                 const std::function<double(std::uint64_t)>& draw) {
  // On all ranks, so that their sequences stay together.
  const auto stream = tessera::detail::RandomStream::next();
  return [=](at::Tensor& piece, const Box& box) {
    Part part;
    for (const auto& extent : box.dims) part.dims.emplace_back(extent);
    const auto dtype = piece.scalar_type() == at::kFloat ? at::kFloat : at::kDouble;
    piece.copy_(
        tessera::detail::draw_part(stream, part, sizes, at::TensorOptions().dtype(dtype), draw));
  };
}

}  // namespace

ShardedTensor zeros(const ShardingSpec& spec, const std::vector<std::int64_t>& sizes,
                    const at::TensorOptions& options, const std::optional<Group>& group) {
  return make_filled("zeros", spec, sizes, dtype_or_default(options), options, group,
                     [](at::Tensor& piece, const Box&) { piece.zero_(); });
}

ShardedTensor ones(const ShardingSpec& spec, const std::vector<std::int64_t>& sizes,
                   const at::TensorOptions& options, const std::optional<Group>& group) {
  return make_filled("ones", spec, sizes, dtype_or_default(options), options, group,
                     [](at::Tensor& piece, const Box&) { piece.fill_(1); });
}

ShardedTensor empty(const ShardingSpec& spec, const std::vector<std::int64_t>& sizes,
                    const at::TensorOptions& options, const std::optional<Group>& group) {
  return make_filled("empty", spec, sizes, dtype_or_default(options), options, group,
                     [](at::Tensor&, const Box&) {});
}

ShardedTensor full(const ShardingSpec& spec, const std::vector<std::int64_t>& sizes,
                   const at::Scalar& value, const at::TensorOptions& options,
                   const std::optional<Group>& group) {
  const auto dtype =
      options.has_dtype() ? dtype_or_default(options) : at::full({}, value).scalar_type();
  return make_filled("full", spec, sizes, dtype, options, group,
                     [&](at::Tensor& piece, const Box&) { piece.fill_(value); });
}

ShardedTensor rand(const ShardingSpec& spec, const std::vector<std::int64_t>& sizes,
                   const at::TensorOptions& options, const std::optional<Group>& group) {
  const auto dtype = dtype_or_default(options);
  return make_filled("rand", spec, sizes, dtype, options, group,
                     random_fill(sizes, [=](std::uint64_t bits) {
                       return tessera::detail::unit_number(bits, dtype);
                     }));
}

ShardedTensor randn(const ShardingSpec& spec, const std::vector<std::int64_t>& sizes,
                    const at::TensorOptions& options, const std::optional<Group>& group) {
  return make_filled("randn", spec, sizes, dtype_or_default(options), options, group,
                     random_fill(sizes, &tessera::detail::normal_number));
}

}  // namespace tessera::sharded
