#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string_view>

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/SmallVector.h>

#include "tessera/base/hash.h"
#include "tessera/comm/world.h"
#include "tessera/tensor/dtensor_meta.h"
#include "tessera/tensor/op_traits.h"

namespace tessera::detail {

/// Everything that a plan depends on, as numbers.
using PlanKey = c10::SmallVector<std::int64_t, 32>;

struct PlanKeyHash {
  std::size_t operator()(const PlanKey& key) const {
    std::size_t hash = key.size();
    for (const auto word : key) hash = hash_combine(hash, static_cast<std::size_t>(word));
    return hash;
  }
};

/// Marks what a number of a key stands for, so that different calls never read alike: numbers that no
/// argument is.
enum class Mark : std::int64_t {
  none = std::numeric_limits<std::int64_t>::min(),
  plain,
  list,
  text,
  other,
};

template <typename T>
std::int64_t address(const T& object) {
  return std::bit_cast<std::int64_t>(&object);
}

/// Writes the key of a call, from the stack or from a kernel's own arguments: both read alike.
class KeyWriter {
 public:
  explicit KeyWriter(PlanKey& key) : key_(key) {}

  /// The same for arguments that are tensors and numbers; `traits` must have all of them in the key.
  template <typename... Arguments>
  void write_unboxed(const OpTraits& traits, const Arguments&... arguments) {
    key_.push_back(address(traits));
    (unboxed(arguments), ...);
  }

  void write(const OpTraits& traits, std::span<const c10::IValue> arguments) {
    key_.push_back(address(traits));
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      const auto& value = arguments[i];
      if (value.isTensor()) {
        tensor(value.toTensor());
      } else if (traits.arguments[i].is_in_key) {
        other(value);
      }
    }
  }

 private:
  void unboxed(const at::Tensor& value) { tensor(value); }
  void unboxed(const std::optional<at::Tensor>& value) {
    tensor(value.has_value() ? *value : at::Tensor());
  }
  void unboxed(const at::Scalar& value) { other(c10::IValue(value)); }
  void unboxed(std::int64_t value) { key_.push_back(value); }
  void unboxed(bool value) { key_.push_back(value ? 1 : 0); }

  void mark(Mark mark) { key_.push_back(static_cast<std::int64_t>(mark)); }

  void tensor(const at::Tensor& tensor) {
    if (!tensor.defined()) return mark(Mark::none);
    const auto* impl = tensor.unsafeGetTensorImpl();
    const auto* meta = dtensor_meta(tensor);
    const bool is_dense = tensor.is_contiguous() && tensor.storage_offset() == 0;
    key_.push_back(static_cast<std::int64_t>(tensor.scalar_type()) |
                   static_cast<std::int64_t>(is_dense) << 8 |
                   static_cast<std::int64_t>(impl->is_wrapped_number()) << 9 |
                   static_cast<std::int64_t>(meta != nullptr && meta->gathered_dims() != 0) << 10 |
                   static_cast<std::int64_t>(tensor.device().type()) << 16);
    if (meta == nullptr) {
      mark(Mark::plain);
      key_.push_back(tensor.numel() == 1 ? tensor.dim() : -1);
      return;
    }
    // Equal layouts share one record, so a member's address identifies all that it says.
    key_.push_back(address(meta->layout().shape()));
    key_.push_back(address(meta->mesh().world().state()));
    if (meta->gathered_dims() != 0) {
      key_.push_back(std::bit_cast<std::int64_t>(meta->gathered_dims()));
    }
    if (!is_dense) {
      for (const auto stride : tensor.strides()) key_.push_back(stride);
      key_.push_back(tensor.storage_offset());
    }
  }

  void other(const c10::IValue& value) {
    if (value.isNone()) {
      mark(Mark::none);
    } else if (value.isInt()) {
      key_.push_back(value.toInt());
    } else if (value.isBool()) {
      key_.push_back(value.toBool() ? 1 : 0);
    } else if (value.isDouble()) {
      key_.push_back(std::bit_cast<std::int64_t>(value.toDouble()));
    } else if (value.isString()) {
      mark(Mark::text);
      key_.push_back(
          std::bit_cast<std::int64_t>(std::hash<std::string_view>()(value.toStringView())));
    } else if (value.isDevice()) {
      key_.push_back(static_cast<std::int64_t>(value.toDevice().type()));
    } else if (value.isList()) {
      list(value);
    } else {
      mark(Mark::other);
    }
  }

  void list(const c10::IValue& value) {
    mark(Mark::list);
    const auto elements = value.toListRef();
    key_.push_back(static_cast<std::int64_t>(elements.size()));
    for (const auto& element : elements) {
      if (element.isTensor()) {
        tensor(element.toTensor());
      } else {
        other(element);
      }
    }
  }

  PlanKey& key_;
};

}  // namespace tessera::detail
