#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>

#include "tessera/tensor/op_decision.h"

namespace tessera::detail {

/// What the schema of an op says, looked up once.
struct OpTraits {
  enum class ArgumentKind : std::uint8_t { tensor, tensor_list, optional_tensor_list, value };

  struct Argument {
    ArgumentKind kind = ArgumentKind::value;
    std::string name;
    /// The op writes to it: in place, or as `out=`.
    bool is_written = false;
    /// It only receives the result, so its values do not matter.
    bool is_out = false;
    /// Plans depend on its value.
    bool is_in_key = true;
  };

  struct Return {
    bool is_list = false;
    /// The written argument that is returned.
    std::optional<std::size_t> argument;
  };

  const c10::FunctionSchema* schema = nullptr;
  /// `aten::add_.Tensor`.
  std::string name;
  /// `add`: without namespace, overload and the mark of in-place variants.
  std::string base_name;
  std::vector<Argument> arguments;
  std::vector<Return> returns;
  bool has_written = false;
  bool has_out = false;
  /// The result shares memory with the first argument.
  bool is_view = false;
  bool is_pointwise = false;
  /// In-place and changes the geometry: `t_`, `squeeze_`, ...
  bool is_inplace_view = false;
  /// Draws random numbers.
  bool is_random = false;
  /// How results follow from arguments; null when only the fallback knows.
  RuleFunction rule = nullptr;
  /// Does everything itself; null for most ops.
  KernelFunction kernel = nullptr;
};

/// Returns the traits of an op; kept.
[[nodiscard]] const OpTraits& traits_of(const c10::OperatorHandle& op);

}  // namespace tessera::detail
