#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <ranges>
#include <span>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace tessera {

/// \file
/// Trees: what functions take and return, seen as a list of leaves.
///
///     Tensor, number, bool, string             one leaf
///     optional                                 what it holds; one leaf of kind `none` when empty
///     vector, array, pair, tuple               the leaves of the elements, in order
///     map                                      the leaves of the values, by ascending key
///     a struct with `TreeFields`               the leaves of its fields, in order
///     anything else (a mesh, a pointer)        one leaf
///
/// So `std::pair<at::Tensor, std::vector<at::Tensor>>` with two elements has three leaves. Other
/// containers of tensors are refused by the compiler: hash maps have no order that all ranks share,
/// and views do not own what would be replaced in them.

/// What a leaf is. An undefined tensor is `none`, as Python's None.
enum class LeafKind : std::uint8_t { tensor, none, boolean, number, string, other };

/// `a tensor`, `nothing`, `a bool`, `a number`, `a string`, `an object`.
[[nodiscard]] const char* to_string(LeafKind kind);

/// Says what the fields of a struct are, so that it is a tree and not a leaf. Specialise it:
///
///     struct Batch { at::Tensor tokens; at::Tensor mask; std::int64_t step; };
///
///     template <>
///     struct tessera::TreeFields<Batch> {
///       static auto of(auto& batch) { return std::tie(batch.tokens, batch.mask, batch.step); }
///     };
template <typename Struct>
struct TreeFields;

namespace detail {

template <typename T>
concept StructTree = requires(T& value) {
  TreeFields<T>::of(value);
};

/// What kind of tree a type is; `leaf` unless a specialisation says otherwise.
enum class TreeShape { leaf, optional, range, map, tuple };

template <typename T>
inline constexpr auto kTreeShape = TreeShape::leaf;
template <typename T>
inline constexpr auto kTreeShape<std::optional<T>> = TreeShape::optional;
template <typename T, typename Allocator>
inline constexpr auto kTreeShape<std::vector<T, Allocator>> = TreeShape::range;
template <typename T, std::size_t Size>
inline constexpr auto kTreeShape<std::array<T, Size>> = TreeShape::range;
template <typename Key, typename T, typename Compare, typename Allocator>
inline constexpr auto kTreeShape<std::map<Key, T, Compare, Allocator>> = TreeShape::map;
template <typename First, typename Second>
inline constexpr auto kTreeShape<std::pair<First, Second>> = TreeShape::tuple;
template <typename... Items>
inline constexpr auto kTreeShape<std::tuple<Items...>> = TreeShape::tuple;

template <typename T>
constexpr bool holds_tensors();

/// True when one of the types in `Tuple` (references are looked through) can hold a tensor.
template <typename Tuple>
struct AnyHoldsTensors;
template <typename... Items>
struct AnyHoldsTensors<std::tuple<Items...>>
    : std::bool_constant<(holds_tensors<std::remove_cvref_t<Items>>() || ...)> {};
template <typename First, typename Second>
struct AnyHoldsTensors<std::pair<First, Second>> : AnyHoldsTensors<std::tuple<First, Second>> {};

/// True when a tree of that type can hold a tensor. Such arguments are copied, to put other tensors
/// in; all others are passed on as they are.
template <typename T>
constexpr bool holds_tensors() {
  if constexpr (std::is_same_v<T, at::Tensor>) {
    return true;
  } else if constexpr (StructTree<T>) {
    return AnyHoldsTensors<decltype(TreeFields<T>::of(std::declval<T&>()))>::value;
  } else if constexpr (kTreeShape<T> == TreeShape::tuple) {
    return AnyHoldsTensors<T>::value;
  } else if constexpr (kTreeShape<T> == TreeShape::map) {
    return holds_tensors<typename T::mapped_type>();
  } else if constexpr (kTreeShape<T> != TreeShape::leaf) {
    return holds_tensors<typename T::value_type>();
  } else {
    return false;
  }
}

/// True for ranges of tensors that are no trees; see the top of this file.
template <typename T>
constexpr bool is_refused() {
  if constexpr (requires { typename T::mapped_type; }) {
    return holds_tensors<typename T::mapped_type>();
  } else if constexpr (std::ranges::range<T>) {
    using Value = std::remove_cvref_t<std::ranges::range_value_t<T>>;
    if constexpr (std::is_same_v<Value, std::remove_cvref_t<T>>) {
      return false;
    } else {
      return holds_tensors<Value>();
    }
  } else {
    return false;
  }
}

template <typename T>
constexpr LeafKind leaf_kind() {
  static_assert(!is_refused<T>(),
                "not a tree: put these tensors into a std::vector, std::array or std::map");
  if constexpr (std::is_same_v<T, bool>) {
    return LeafKind::boolean;
  } else if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, at::Scalar>) {
    return LeafKind::number;
  } else if constexpr (std::is_convertible_v<const T&, std::string_view>) {
    return LeafKind::string;
  } else {
    return LeafKind::other;
  }
}

/// Calls `visit(kind, tensor)` for every leaf in order; `tensor` is a pointer that is null for
/// leaves of other types.
template <typename Tree, typename Visit>
void visit_leaves(Tree& tree, Visit& visit) {
  using T = std::remove_const_t<Tree>;
  using Pointer = std::conditional_t<std::is_const_v<Tree>, const at::Tensor*, at::Tensor*>;
  const auto visit_all = [&](auto&... items) { (visit_leaves(items, visit), ...); };
  if constexpr (std::is_same_v<T, at::Tensor>) {
    visit(tree.defined() ? LeafKind::tensor : LeafKind::none, Pointer(&tree));
  } else if constexpr (StructTree<T>) {
    std::apply(visit_all, TreeFields<T>::of(tree));
  } else if constexpr (kTreeShape<T> == TreeShape::tuple) {
    std::apply(visit_all, tree);
  } else if constexpr (kTreeShape<T> == TreeShape::map) {
    for (auto& entry : tree) visit_leaves(entry.second, visit);
  } else if constexpr (kTreeShape<T> == TreeShape::range) {
    if constexpr (std::is_same_v<typename T::value_type, bool>) {
      for (std::size_t i = 0; i < tree.size(); ++i) visit(LeafKind::boolean, Pointer(nullptr));
    } else {
      for (auto& item : tree) visit_leaves(item, visit);
    }
  } else if constexpr (kTreeShape<T> == TreeShape::optional) {
    if (tree.has_value()) {
      visit_leaves(*tree, visit);
    } else {
      visit(LeafKind::none, Pointer(nullptr));
    }
  } else {
    visit(leaf_kind<T>(), Pointer(nullptr));
  }
}

[[noreturn]] void throw_wrong_number_of_tensors(std::size_t given, std::size_t wanted);

}  // namespace detail

/// One leaf of a tree.
struct TreeLeaf {
  LeafKind kind = LeafKind::other;
  /// Undefined unless the leaf is a tensor.
  at::Tensor tensor;
};

/// Returns the leaves of a tree, in order.
template <typename Tree>
[[nodiscard]] std::vector<TreeLeaf> leaves_of(const Tree& tree) {
  std::vector<TreeLeaf> leaves;
  auto visit = [&](LeafKind kind, const at::Tensor* tensor) {
    leaves.push_back({kind, tensor == nullptr ? at::Tensor() : *tensor});
  };
  detail::visit_leaves(tree, visit);
  return leaves;
}

/// Returns a tree like `tree` whose defined tensors are `tensors`, in order; everything else is
/// copied. `rebuild(tree, tensors_of(tree))` is `tree`. Throws `InvalidArgument` unless there are as
/// many.
template <typename Tree>
[[nodiscard]] Tree rebuild(Tree tree, std::span<const at::Tensor> tensors) {
  std::size_t count = 0;
  auto visit = [&](LeafKind kind, at::Tensor* tensor) {
    if (kind != LeafKind::tensor) return;
    if (count < tensors.size()) *tensor = tensors[count];
    ++count;
  };
  detail::visit_leaves(tree, visit);
  if (count != tensors.size()) detail::throw_wrong_number_of_tensors(tensors.size(), count);
  return tree;
}

/// Returns the defined tensors of a tree, in order.
template <typename Tree>
[[nodiscard]] std::vector<at::Tensor> tensors_of(const Tree& tree) {
  std::vector<at::Tensor> tensors;
  auto visit = [&](LeafKind kind, const at::Tensor* tensor) {
    if (kind == LeafKind::tensor) tensors.push_back(*tensor);
  };
  detail::visit_leaves(tree, visit);
  return tensors;
}

}  // namespace tessera
