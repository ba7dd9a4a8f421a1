#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include "tessera/comm/device_mesh.h"
#include "tessera/layout/layout.h"
#include "tessera/tensor/op_traits.h"

namespace tessera::detail {

/// One tensor of a call: an argument, or an element of one that is a list.
struct CallTensor {
  std::size_t argument = 0;
  /// Its place in a list.
  std::optional<std::size_t> element;
  at::Tensor tensor;
  /// Null for plain tensors, which have one element and count as replicated.
  DTensorMeta* meta = nullptr;
  bool is_written = false;
};

/// A call of an op as rules see it: global shapes and layouts, and the other arguments.
class OpCall {
 public:
  /// `arguments` are the op's on the stack; at least one tensor is a DTensor.
  ///
  /// Throws `InvalidArgument` for DTensors on different meshes, and for plain tensors of more than
  /// one element.
  OpCall(const OpTraits& traits, std::span<const c10::IValue> arguments);

  [[nodiscard]] const OpTraits& traits() const { return *traits_; }
  [[nodiscard]] const DeviceMesh& mesh() const { return *mesh_; }

  /// All defined tensors but those that are `out=`, in order.
  [[nodiscard]] const std::vector<CallTensor>& inputs() const { return inputs_; }
  /// The tensors of `out=`.
  [[nodiscard]] const std::vector<CallTensor>& outs() const { return outs_; }
  [[nodiscard]] std::int64_t ndim(std::size_t input) const { return inputs_[input].tensor.dim(); }
  [[nodiscard]] Shape shape(std::size_t input) const;
  [[nodiscard]] std::vector<Shape> shapes() const;
  /// How an input counts when layouts are chosen: as it is, or as it will be once it was gathered.
  [[nodiscard]] Layout layout(std::size_t input) const;
  /// Whether moving an input into `needed` is the gathering that was asked for, and nothing else.
  [[nodiscard]] bool is_gathered(std::size_t input, const Layout& needed) const;
  /// The layout that counts as the present one for a plain tensor.
  [[nodiscard]] Layout replicated(const at::Tensor& tensor) const;
  /// This rank's place in the mesh; nothing outside of it.
  [[nodiscard]] std::optional<std::int64_t> position() const;

  /// The argument of that place in the schema.
  [[nodiscard]] const c10::IValue& argument(std::size_t index) const { return arguments_[index]; }
  /// The argument of that name. Throws `InternalError` when the schema has none.
  [[nodiscard]] const c10::IValue& argument(std::string_view name) const;
  [[nodiscard]] std::size_t index_of(std::string_view name) const;
  [[nodiscard]] bool has_argument(std::string_view name) const;
  [[nodiscard]] std::int64_t integer(std::string_view name) const { return argument(name).toInt(); }
  /// The input that is the argument of that name; nothing when it is undefined or not a tensor.
  [[nodiscard]] std::optional<std::size_t> input_of(std::string_view name) const;

  /// `aten::mm(f32[2048,256][S(0),R], f32[256,8][R,S(1)]) on [dp=2, tp=4]`.
  [[nodiscard]] std::string to_string() const;

 private:
  void add(std::size_t argument, std::optional<std::size_t> element, const at::Tensor& tensor);
  void check_meshes() const;
  void check_plain() const;

  const OpTraits* traits_;
  std::span<const c10::IValue> arguments_;
  std::vector<CallTensor> inputs_;
  std::vector<CallTensor> outs_;
  const DeviceMesh* mesh_ = nullptr;
  bool gathers_ = false;
};

/// `f32[8,4][S(0),R]`; `f32[] (plain)` for a plain tensor.
[[nodiscard]] std::string describe_tensor(const at::Tensor& tensor);

/// `f32`, `i64`, `bf16`, ...: short names of dtypes.
[[nodiscard]] std::string short_name(at::ScalarType dtype);

}  // namespace tessera::detail
