#pragma once

#include <optional>
#include <variant>

#include "tessera/python/bindings.h"
#include "tessera/sharded/sharding_spec.h"

namespace pybind11::detail {

/// Sharding specs of either kind. pybind11's own caster makes an empty one first, which there is none of.
template <>
struct type_caster<tessera::sharded::ShardingSpec> {
  using Spec = tessera::sharded::ShardingSpec;
  template <typename T>
  using cast_op_type = const Spec&;
  static constexpr auto name = const_name("ShardingSpec");

  bool load(handle object, bool /*convert*/) {
    if (isinstance<tessera::sharded::ChunkShardingSpec>(object)) {
      value_ = object.cast<const tessera::sharded::ChunkShardingSpec&>();
    } else if (isinstance<tessera::sharded::EnumerableShardingSpec>(object)) {
      value_ = object.cast<const tessera::sharded::EnumerableShardingSpec&>();
    }
    return value_.has_value();
  }

  static handle cast(const Spec& spec, return_value_policy /*policy*/, handle /*parent*/) {
    return std::visit([](const auto& kind) { return pybind11::cast(kind).release(); }, spec);
  }

  operator const Spec&() const { return *value_; }  // NOLINT(google-explicit-constructor)

 private:
  std::optional<Spec> value_;
};

}  // namespace pybind11::detail
