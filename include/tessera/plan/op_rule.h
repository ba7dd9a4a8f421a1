#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/layout/layout.h"
#include "tessera/layout/placement.h"

namespace tessera {

/// What it means for an op when a factor is sharded.
enum class FactorKind : std::uint8_t {
  /// In every output: sharded inputs give outputs that are sharded alike.
  pass_through,
  /// Outputs that lack the factor hold contributions, `Partial(op)`.
  reduce,
  /// As `reduce` with sum, and the local op divides by the *global* number of elements instead of
  /// the local one, so that uneven and empty shards come out right.
  mean,
  /// May not be sharded: softmax's dim, sort's dim.
  whole,
};

/// One index of a rule: all tensor dims that carry it have the same size and are sharded together.
struct Factor {
  std::string name;
  FactorKind kind = FactorKind::pass_through;
  /// How contributions combine; sum for `mean`, and of no meaning for the others.
  ReduceOp op = ReduceOp::sum;
  /// Inputs that lack the factor and enter the result by `op` itself, once for all ranks, such as
  /// the bias of addmm: they are `Partial(op)` while the factor is sharded.
  std::vector<std::int64_t> addends;

  bool operator==(const Factor&) const = default;
};

/// The size of a factor that no input has.
struct FactorSize {
  std::string factor;
  std::int64_t size = 0;
};

/// One valid way of placing all tensors of an op along one mesh dim: when the inputs are placed so,
/// running the op on the local parts gives the local parts of the outputs.
struct Strategy {
  /// One placement per input, and per output.
  std::vector<Placement> inputs;
  std::vector<Placement> outputs;
  /// The factor that is sharded, an index into `OpRule::factors`; nothing when all is replicated
  /// and when Partial passes through.
  std::optional<std::size_t> factor;

  bool operator==(const Strategy&) const = default;
};

/// Prints `S(0), R -> S(0)`.
std::ostream& operator<<(std::ostream& os, const Strategy& strategy);

/// How the tensors of an op hang together, in index notation:
///
///     mm:      (m k), (k n) -> (m n)               | k: sum | linear {0}, {1}
///     addmm:   (m n), (m k), (k n) -> (m n)        | k: sum {0} | linear {0 1}, {0 2}
///     add:     (a b), (1 b) -> (a b)               | linear {0 1}
///     mean:    (a b) -> (a 1)                      | b: mean | linear {0}
///     softmax: (b s) -> (b s)                      | s: whole
///     norm:    (b d), (d) -> (b d), (b 1)          | d: whole
///     embed:   (v d), (b s) -> (b s d)             | v: sum | linear {0}
///
/// A tensor lists one factor per dim; `1` is a dim of size 1 that follows no factor, and `()` a
/// tensor without dims. A factor stands at most once in a tensor. By default a factor passes
/// through and must be in every output; a clause says otherwise: `k: sum` (or another reduce op)
/// reduces, `k: mean` averages, `k: whole` may not be sharded. One clause may name several factors,
/// `a b: mean`, and several clauses are joined by `,` or `|`. Inputs in braces behind the op are
/// its `addends`. A factor may be in outputs only (`expand: (b) -> (a b)`); whoever binds the rule
/// then gives its size.
///
/// `linear` lists groups of inputs. The inputs of one group may be Partial(sum), or Partial(avg),
/// together while all others are Replicate, and the outputs then are too. Addition is linear in
/// both together, {0 1}; a product in each alone, {0}, {1}; a quotient in {0}; adding a constant is
/// not linear, as every rank would add it. Partial of any other op never passes through an op: the
/// input is reduced first.
///
/// What the local op must do by itself: reduce an empty part to the identity of its op (0 for sum,
/// -inf for max); divide by the global count where a `mean` factor is sharded (see
/// `OpChoice::mean_count`); and know where its part begins where indices point into a sharded
/// factor (`embed`'s v).
///
/// A value type; equal rules have equal text but for blanks.
class OpRule {
 public:
  /// The factor of every dim of a tensor, an index into `factors`, or `kBroadcast`.
  using Dims = std::vector<std::int64_t>;
  static constexpr std::int64_t kBroadcast = -1;

  /// Reads the notation above. Everything in front of the `:` is the name, so `aten::add.Tensor`
  /// is one.
  ///
  /// Throws `InvalidArgument` that shows the text and says what is wrong with it: not the notation,
  /// no input or no output, a factor twice in a tensor, in two clauses, in no tensor, or missing
  /// from an output without a clause; `avg` as an op (write `mean`); a reducing factor that is in
  /// every output or in no input; two ops that do not mix; an input in braces that does not exist,
  /// stands there twice, or carries the factor it is an addend of; `linear` with an op other than
  /// sum.
  [[nodiscard]] static OpRule parse(std::string_view text);

  [[nodiscard]] const std::string& name() const { return name_; }
  /// In the order in which the text first names them.
  [[nodiscard]] const std::vector<Factor>& factors() const { return factors_; }
  [[nodiscard]] const std::vector<Dims>& inputs() const { return inputs_; }
  [[nodiscard]] const std::vector<Dims>& outputs() const { return outputs_; }
  [[nodiscard]] const std::vector<std::vector<std::int64_t>>& linear() const { return linear_; }

  /// Returns all valid placements along one mesh dim: everything replicated; each factor that is
  /// not whole sharded, in order; each linear group Partial(sum), then Partial(avg). Mesh dims
  /// choose independently of each other, as long as all tensors nest several cuts of one factor in
  /// the same order.
  [[nodiscard]] std::vector<Strategy> strategies() const;

  /// Returns the strategy that shards one factor: `Shard`, or with a `split_factor` above 1
  /// `StridedShard`, for which the same holds because all tensors are cut alike.
  ///
  /// Throws `InvalidArgument` when there is no such factor, when it must be whole, and when
  /// split_factor < 1.
  [[nodiscard]] Strategy shard_factor(std::size_t factor, std::int64_t split_factor = 1) const;

  /// Returns the size of every factor, given the inputs' global shapes and the `sizes` of factors
  /// that no input has.
  ///
  /// Throws `InvalidArgument` when the number of shapes or of their dims is not the rule's, a `1`
  /// dim has another size, two inputs disagree about a factor, a size is missing, or `sizes` names
  /// a factor that does not exist, contradicts the inputs, or is negative.
  [[nodiscard]] std::vector<std::int64_t> bind(const std::vector<Shape>& shapes,
                                               const std::vector<FactorSize>& sizes = {}) const;

  /// Returns the global shape of an output, given what `bind` returned. Throws `InvalidArgument`
  /// when there is no such output or not one size per factor.
  [[nodiscard]] Shape output_shape(std::size_t output,
                                   const std::vector<std::int64_t>& factor_sizes) const;

  /// Returns the notation, which `parse` reads back: one blank between factors, clauses in the
  /// order of the factors, `linear` last.
  [[nodiscard]] std::string to_string() const;

  bool operator==(const OpRule&) const = default;

 private:
  class Parser;
  OpRule() = default;

  std::string name_;
  std::vector<Factor> factors_;
  std::vector<Dims> inputs_;
  std::vector<Dims> outputs_;
  std::vector<std::vector<std::int64_t>> linear_;
};

std::ostream& operator<<(std::ostream& os, const OpRule& rule);

/// Returns the rule of an op that works element by element on inputs of these global shapes, which
/// are broadcast against each other as in NumPy: aligned at their last dims, where a size of 1
/// yields to any other.
///
///     pointwise_rule("add", {{8, 4}, {1, 4}}, {{0, 1}})
///         add: (a b), (1 b) -> (a b) | linear {0 1}
///     pointwise_rule("exp", {{8, 4}})
///         exp: (a b) -> (a b)
///
/// A dim that is 1 in every input is a factor like the others; a size of 0 is a size like the
/// others. Throws `InvalidArgument` for no shapes, for sizes that cannot be broadcast, and as
/// `OpRule::parse` does for `linear`.
[[nodiscard]] OpRule pointwise_rule(std::string_view name, const std::vector<Shape>& shapes,
                                    const std::vector<std::vector<std::int64_t>>& linear = {});

/// Returns the rule of an op that reduces `dims` of a tensor of `ndim` dims; with `keepdim` they
/// stay as dims of size 1.
///
///     reduction_rule("sum", 2, {1}, false, ReduceOp::sum)
///         sum: (a b) -> (a) | b: sum | linear {0}
///     reduction_rule("mean", 1, {}, true, ReduceOp::avg)
///         mean: (a) -> (1) | a: mean | linear {0}
///     reduction_rule("median", 2, {1}, false, std::nullopt)
///         median: (a b) -> (a) | b: whole
///
/// `avg` is the mean, whose contributions are summed; no op means that the dims must be whole.
/// No `dims` reduce all of them, as in libtorch; negative ones count from the end; a tensor without
/// dims may be reduced over dim 0 or -1, which changes nothing. Throws `InvalidArgument` when a dim
/// is out of range or given twice, or ndim < 0.
[[nodiscard]] OpRule reduction_rule(std::string_view name, std::int64_t ndim,
                                    const std::vector<std::int64_t>& dims, bool keepdim,
                                    std::optional<ReduceOp> op);

/// Returns the rule of an op whose output dim i is input dim `permutation[i]`:
/// `permute_rule("permute", {1, 0})` is `permute: (a b) -> (b a) | linear {0}`.
///
/// Negative dims count from the end. Throws `InvalidArgument` unless every dim is there once.
[[nodiscard]] OpRule permute_rule(std::string_view name,
                                  const std::vector<std::int64_t>& permutation);

}  // namespace tessera
