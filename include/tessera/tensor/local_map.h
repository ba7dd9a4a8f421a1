#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include "tessera/comm/device_mesh.h"
#include "tessera/layout/layout.h"
#include "tessera/layout/placement.h"
#include "tessera/tensor/tree.h"

namespace tessera {

/// What is said about one leaf: a list such as `{Shard(0), Replicate()}`, or nothing, `std::nullopt`.
template <typename Item>
class LeafEntry : public std::optional<std::vector<Item>> {
 public:
  // NOLINTBEGIN(google-explicit-constructor): entries are written as lists in lists.
  LeafEntry(std::nullopt_t) {}
  LeafEntry(std::vector<Item> items) : std::optional<std::vector<Item>>(std::move(items)) {}
  LeafEntry(std::initializer_list<Item> items)
      : std::optional<std::vector<Item>>(std::vector<Item>(items)) {}
  // NOLINTEND(google-explicit-constructor)
};
using LeafPlacements = LeafEntry<Placement>;
using LeafShape = LeafEntry<std::int64_t>;

/// What a mapped function returns when none of its arguments is a DTensor.
enum class WithoutDTensors : std::uint8_t {
  /// What the function returns, as it is: PyTorch's rule.
  plain_results,
  /// DTensors whenever a mesh is given: Paddle's rule. Without a mesh, placements for a result are an
  /// error.
  wrap_if_mesh,
};

/// How a function is mapped. Entries are per leaf (see `tree.h`) of all arguments together, or of the
/// result; `std::nullopt` for leaves that are no tensors.
struct LocalMapOptions {
  /// How the results are placed: one entry per leaf, or one for all. Left out: none are tensors.
  ///
  ///     {{Shard(0), Replicate()}}          every result, on a mesh of two dims
  ///     {{Shard(0)}, std::nullopt}         a tensor and a number, on a mesh of one
  std::vector<LeafPlacements> out_placements = {};
  /// How the arguments must be placed. Plain tensors pass unchecked. Left out: as they are.
  std::vector<LeafPlacements> in_placements = {};
  /// How the gradients that the function computes for its arguments are placed; see `local_map`.
  std::vector<LeafPlacements> in_grad_placements = {};
  /// The mesh of all DTensors; Paddle's `process_mesh`. Left out: that of the arguments.
  std::optional<DeviceMesh> mesh = {};
  /// Place arguments as `in_placements` says where they are not; Paddle's `reshard_inputs`.
  bool redistribute_inputs = false;
  /// The global shapes of the results, one entry per leaf or one for all. `std::nullopt` has the
  /// ranks tell each other their local sizes. Left out: see `local_map`.
  std::vector<LeafShape> out_shapes = {};
  WithoutDTensors without_dtensors = WithoutDTensors::plain_results;
  /// Compare what the ranks return, for debugging: one `all_gather_object` of a few bytes per leaf,
  /// and no other exchange. Copies (Replicate) that differ in a bit, parts whose shapes or dtypes do
  /// not fit together, trees that differ, and what one rank alone would refuse, are an
  /// `InvalidArgument` on all ranks that names the ranks.
  bool check_outputs = false;
};

namespace detail {

struct MappedLeaf {
  LeafKind kind;
  at::Tensor* tensor;
};
using MappedLeaves = c10::SmallVector<MappedLeaf, 8>;

/// One call of a mapped function.
class LocalMapCall {
 public:
  /// Checks the arguments, then puts local tensors in the place of DTensors.
  LocalMapCall(const LocalMapOptions& options, const MappedLeaves& inputs);
  /// Checks the results, then puts DTensors in the place of local tensors.
  void wrap(const MappedLeaves& outputs) const;

 private:
  struct Input;

  void find_mesh(const MappedLeaves& inputs);
  void check_input(std::size_t index, const MappedLeaf& leaf, Input& input) const;
  void check_out_placements() const;
  void unwrap(const Input& input, at::Tensor& tensor);
  /// Null where nothing is said.
  [[nodiscard]] const LeafPlacements* out_entry(std::size_t index) const;
  [[nodiscard]] const LeafShape* out_shape(std::size_t index) const;
  void check_outputs(const MappedLeaves& outputs) const;
  /// Nothing for leaves that are no tensors.
  using OutLayouts = c10::SmallVector<std::optional<Layout>, 8>;
  void find_layouts(const MappedLeaves& outputs, OutLayouts& layouts) const;
  void find_layouts_together(const MappedLeaves& outputs, OutLayouts& layouts) const;
  [[nodiscard]] at::Tensor wrapped(const at::Tensor& local, const Layout& layout) const;
  /// Nothing when the other ranks must be asked.
  [[nodiscard]] std::optional<Layout> known_layout(std::size_t index, const at::Tensor& local,
                                                   const Placements& placements) const;
  using Sizes = c10::SmallVector<std::int64_t, 8>;
  [[nodiscard]] std::optional<Sizes> shape_like_inputs(const at::Tensor& local,
                                                       const Placements& placements) const;
  [[nodiscard]] std::optional<Layout> input_layout(at::IntArrayRef shape,
                                                   const Placements& placements) const;

  const LocalMapOptions* options_;
  /// Nothing when the results stay plain.
  std::optional<DeviceMesh> mesh_;
  /// Of the arguments as the function gets them.
  c10::SmallVector<Layout, 4> layouts_;
  /// The mesh dims along which all ranks compute the same, one bit each.
  std::uint64_t redundant_dims_ = 0;
};

template <typename Tree>
void collect_leaves(Tree& tree, MappedLeaves& leaves) {
  auto visit = [&](LeafKind kind, const at::Tensor* tensor) {
    // Constant trees are such that hold no tensors.
    leaves.push_back({kind, const_cast<at::Tensor*>(tensor)});
  };
  visit_leaves(tree, visit);
}

/// What an argument is kept as during a call: trees that can hold tensors are copied.
template <typename Arg>
using HeldArg =
    std::conditional_t<holds_tensors<std::remove_cvref_t<Arg>>(), std::remove_cvref_t<Arg>, Arg&&>;

template <typename Fn, typename... Args>
using MappedResult = std::decay_t<std::invoke_result_t<Fn&, Args...>>;

template <typename Fn, typename... Args>
MappedResult<Fn, Args...> call_on_locals(Fn& fn, const LocalMapOptions& options,
                                         HeldArg<Args>... held) {
  MappedLeaves leaves;
  (collect_leaves(held, leaves), ...);
  const LocalMapCall call(options, leaves);
  leaves.clear();
  if constexpr (std::is_void_v<MappedResult<Fn, Args...>>) {
    std::invoke(fn, static_cast<Args&&>(held)...);
    call.wrap(leaves);
  } else {
    MappedResult<Fn, Args...> result = std::invoke(fn, static_cast<Args&&>(held)...);
    collect_leaves(result, leaves);
    call.wrap(leaves);
    return result;
  }
}

}  // namespace detail

/// What `local_map` returns: called as the function itself, with DTensors.
template <typename Fn>
class LocalMapped {
 public:
  LocalMapped(Fn fn, LocalMapOptions options) : fn_(std::move(fn)), options_(std::move(options)) {}

  template <typename... Args>
  detail::MappedResult<Fn, Args...> operator()(Args&&... args) {
    return detail::call_on_locals<Fn, Args...>(fn_, options_, std::forward<Args>(args)...);
  }
  template <typename... Args>
  detail::MappedResult<const Fn, Args...> operator()(Args&&... args) const {
    return detail::call_on_locals<const Fn, Args...>(fn_, options_, std::forward<Args>(args)...);
  }

 private:
  Fn fn_;
  LocalMapOptions options_;
};

/// Returns a function that takes DTensors where `fn` takes plain tensors: it calls `fn` with this
/// rank's parts, and returns the DTensors whose parts are what `fn` returns.
///
///     auto matmul = local_map(
///         [&](const at::Tensor& a, const at::Tensor& b) {
///           return all_reduce(at::mm(a, b), ReduceOp::sum, mesh);
///         },
///         {.out_placements = {{Replicate()}}, .in_placements = {{Shard(1)}, {Shard(0)}}});
///     at::Tensor product = matmul(a, b);
///
/// All ranks of the mesh must call it, in the same order. Arguments and results may be trees. The
/// parts share the DTensors' memory; nothing is copied or sent where the placements fit. Arguments
/// that are still on their way are waited for; results may be on their way.
///
/// **Shapes.** A result is as large as its parts together. Where a mesh dim of more than one rank
/// cuts it, the parts of the other ranks count too:
/// 1. With `out_shapes`, the shape is the given one.
/// 2. Else, when all ranks hold equally large parts of every argument, and every dim that is cut is
///    as long here as a dim of an argument that the same mesh dims cut: as long as that one.
/// 3. Else the ranks tell each other, by one small `all_gather_into_tensor` for all results.
///
/// With rules 1 and 2 a rank takes for granted what the others return, which is right where sizes
/// depend on those of arguments only. Otherwise ranks may come to different conclusions, or some may
/// ask while others do not. That never goes unnoticed: with their next collective on the mesh or
/// along one of its dims, or if that is the asking itself, they compare what they took every result
/// for, and all throw `CommError` before any data moves. This costs no traffic; it is part of the
/// checks that `TESSERA_CHECK=0` switches off. Where sizes depend on values or on the rank, pass
/// `out_shapes`: `{std::nullopt}` asks for rule 3.
///
/// **Gradients** flow through, as often as `fn` can be differentiated; collectives in it count, with
/// their convention that the loss is the sum of all ranks' losses. So along a mesh dim
///
///     an argument that is     S(d)   R        P(sum)   P(avg), P(min), P(max)
///     has a gradient that is  S(d)   P(sum)   R        P(sum)
///
/// unless `in_grad_placements` says otherwise, and the gradient of a result arrives as S(d) for S(d),
/// as P(sum) for R, whole for P(sum), and as its share for P(avg); others cannot be differentiated.
/// `in_grad_placements` with R for an argument that is R say that all ranks along that mesh dim
/// compute the same without summing gradients; those of results that are R then arrive whole. A rank
/// computes the gradient of what it got: S(d) is declared where the argument is S(d), and only there.
///
/// Throws `InvalidArgument`, on all ranks alike and before anything moves: for DTensors on different
/// meshes, or on another one than the given; for a number of entries that is not that of the leaves;
/// for a DTensor with no entry, or another leaf with one; for placements that differ from
/// `in_placements` (set `redistribute_inputs`); for `in_grad_placements` and `out_placements` that
/// cannot be true. After the call: for tensors without placements, others with, DTensors, placements
/// that a result of that dtype and number of dims cannot have, and parts that do not fit together or
/// to `out_shapes`. On ranks outside of the mesh, which have no parts to call `fn` with.
template <typename Fn>
[[nodiscard]] LocalMapped<std::decay_t<Fn>> local_map(Fn&& fn, LocalMapOptions options) {
  return {std::forward<Fn>(fn), std::move(options)};
}

}  // namespace tessera
