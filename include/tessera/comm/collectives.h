#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "tessera/comm/group.h"
#include "tessera/layout/placement.h"

namespace at {
class Tensor;
}

namespace tessera {

/// \file
/// Functional collectives: they return new tensors and leave their arguments as they are.
///
/// All members of the group must call the same collectives in the same order. A `DeviceMesh` can be
/// passed as group (all its ranks); `mesh["tp"]` and `mesh.group("tp")` are the group of one mesh
/// dim. Members, roots and peers are numbered by their place in the group. A tensor must be strided;
/// it may have any number of elements, 0 too, and any strides.
///
/// Checks: the members compare what they call before data moves (`WorldOptions::check`), and a call
/// that only one of them makes wrongly fails on all: with `InvalidArgument` where it is wrong and
/// with a `CommError` that shows the calls elsewhere.
///
/// Dtypes: collectives that move values move bytes, so NaN, -0 and everything else arrive bit by bit
/// in every dtype. Reductions are done in the tensor's own dtype where the engine can, otherwise
///
///     float16, bfloat16, float8   in float32, rounded once
///     bool                        as uint8: sum and bor are "or", product and band are "and"
///     int16, uint16               in int32      uint32   in int64     (wrapping as their own would)
///     uint64                      as int64, its top bit flipped for min and max
///     complex sum, avg            as pairs of real numbers
///     anything else               every member gathers all contributions and reduces them itself,
///                                 in the order of the group (product of complex numbers)
///
/// avg needs a floating or complex dtype, min and max any but complex, band, bor and bxor an integer
/// dtype or bool: others are `InvalidArgument`.
///
/// Gradients: the loss is the sum of all members' losses. Backward passes are made of these
/// collectives too, so gradients can be differentiated again, and all members must take part in a
/// backward pass: an input must require gradients on all of them or on none. Forward-mode
/// derivatives are not supported. band, bor, bxor, `send`, `recv` have none.
///
/// Traffic is counted as one record per call under the c10d name, with 0 bytes in a group of one and
/// for tensors without elements; see `CommDebugMode`. What the checks exchange is not counted.

/// How a collective is called.
struct CollectiveOptions {
  /// Return before the data has moved. The result has its sizes and dtype; its values come when it is
  /// first used by an operation, or by `wait`. The arguments must not be changed until then. With
  /// threads the call returns at once. Between processes the members compare what they call first
  /// (unless `WorldOptions::check` is off), so it returns when all have made the call; only the data
  /// moves behind its back. What members tell each other, such as sizes that are left out, is waited
  /// for with all engines.
  bool async_op = false;
};

/// The same for collectives along a tensor dim.
struct SplitOptions {
  /// See `CollectiveOptions`.
  bool async_op = false;
  /// What each member has along the dim, equal on all members. What is left out is stated by each
  /// collective.
  std::vector<std::int64_t> sizes = {};
};

/// Returns the reduction of all members' `x`, which must have the same shape and dtype. Counted as
/// `all_reduce`, with 2 (n - 1) / n times the bytes of `x` in and out, for n members.
///
/// Gradients of min and max are shared evenly among equal extremes. That of a product gathers all
/// members' `x`.
[[nodiscard]] at::Tensor all_reduce(const at::Tensor& x, ReduceOp op, const Group& group,
                                    const CollectiveOptions& options = {});

/// The same for several tensors: one message per dtype. Counted once, as `all_reduce_coalesced`.
[[nodiscard]] std::vector<at::Tensor> all_reduce(const std::vector<at::Tensor>& tensors,
                                                 ReduceOp op, const Group& group,
                                                 const CollectiveOptions& options = {});

/// Returns all members' `x` concatenated along `dim`; a tensor without dims counts as one of a
/// single element. Shapes must agree except along `dim`. Counted as `all_gather_into_tensor`, with
/// the bytes of the others' `x`.
///
/// `sizes` are the members' sizes along `dim`; left out, the members tell each other in a small
/// exchange of its own (which is not counted, and part of the check when that is on).
[[nodiscard]] at::Tensor all_gather(const at::Tensor& x, std::int64_t dim, const Group& group,
                                    const SplitOptions& options = {});

/// The same for several tensors, each along `dim`: one message per dtype. Counted once, as
/// `all_gather_into_tensor_coalesced`.
[[nodiscard]] std::vector<at::Tensor> all_gather(const std::vector<at::Tensor>& tensors,
                                                 std::int64_t dim, const Group& group,
                                                 const CollectiveOptions& options = {});

/// Returns this member's piece along `dim` of the reduction of all members' `x`, which must have the
/// same shape and dtype. Counted as `reduce_scatter_tensor`: n - 1 times the bytes of the result
/// come in, those of the others' pieces go out.
///
/// `sizes` are the pieces' sizes; left out, those of `chunk_extent`: 5 over 4 is 2, 2, 1, 0.
[[nodiscard]] at::Tensor reduce_scatter(const at::Tensor& x, std::int64_t dim, ReduceOp op,
                                        const Group& group, const SplitOptions& options = {});

/// The same for several tensors, each along `dim`: one message per dtype. Counted once, as
/// `reduce_scatter_tensor_coalesced`.
[[nodiscard]] std::vector<at::Tensor> reduce_scatter(const std::vector<at::Tensor>& tensors,
                                                     std::int64_t dim, ReduceOp op,
                                                     const Group& group,
                                                     const CollectiveOptions& options = {});

/// Sends piece i of `x` along dim 0 to member i, and returns the pieces received, concatenated along
/// dim 0. Shapes must agree except along dim 0. Counted as `all_to_all_single`, without what a
/// member sends to itself.
///
/// `send_splits` are the sizes of the pieces, `receive_splits` those of the pieces that come. Without
/// `receive_splits` the members tell each other, in an exchange that is not counted. Without both,
/// `x` is cut evenly, and must have the same shape everywhere, a multiple of n along dim 0.
[[nodiscard]] at::Tensor all_to_all(const at::Tensor& x,
                                    const std::vector<std::int64_t>& receive_splits,
                                    const std::vector<std::int64_t>& send_splits,
                                    const Group& group, const CollectiveOptions& options = {});

/// Returns the root's `x`. Shape and dtype must be the same everywhere; the values of the others do
/// not matter, and their gradients are 0. Counted as `broadcast`.
[[nodiscard]] at::Tensor broadcast(const at::Tensor& x, std::int64_t root, const Group& group,
                                   const CollectiveOptions& options = {});

/// Returns this member's piece along `dim` of the root's `x`. Shape and dtype must be the same
/// everywhere; the values of the others do not matter (an expanded tensor will do), and their
/// gradients are 0. Counted as `scatter`.
///
/// `sizes` are the pieces' sizes; left out, those of `chunk_extent`.
[[nodiscard]] at::Tensor scatter(const at::Tensor& x, std::int64_t dim, std::int64_t root,
                                 const Group& group, const SplitOptions& options = {});

/// Returns member i's piece, `pieces[i]` of the root; the others pass none. The pieces may differ in
/// shape but not in dtype: the root tells the others, in an exchange that is not counted.
[[nodiscard]] at::Tensor scatter(const std::vector<at::Tensor>& pieces, std::int64_t root,
                                 const Group& group, const CollectiveOptions& options = {});

/// Returns on the root all members' `x` concatenated along `dim`, and elsewhere an empty tensor (of
/// size 0 along `dim`), through which a backward pass must go too. Sizes as with `all_gather`.
/// Counted as `gather`.
[[nodiscard]] at::Tensor gather(const at::Tensor& x, std::int64_t dim, std::int64_t root,
                                const Group& group, const SplitOptions& options = {});

/// Sends `x` from the first member of each pair to the second, and returns what came; zeros where
/// nothing does. No member may be the first, or the second, of two pairs. Shape and dtype must be
/// the same everywhere. Counted as `all_to_all_single`. Never deadlocks, unlike `send` and `recv`
/// around a ring.
[[nodiscard]] at::Tensor permute(const at::Tensor& x,
                                 const std::vector<std::pair<std::int64_t, std::int64_t>>& pairs,
                                 const Group& group, const CollectiveOptions& options = {});
/// The same, so that `{{0, 1}}` is a pair and nothing else.
[[nodiscard]] at::Tensor permute(const at::Tensor& x,
                                 std::initializer_list<std::pair<std::int64_t, std::int64_t>> pairs,
                                 const Group& group, const CollectiveOptions& options = {});

/// The same where member i sends to `destinations[i]`, or to nobody when that is -1.
[[nodiscard]] at::Tensor permute(const at::Tensor& x, const std::vector<std::int64_t>& destinations,
                                 const Group& group, const CollectiveOptions& options = {});

/// Returns when all members have called it. Counted as `barrier`.
void barrier(const Group& group);

/// Sends `x` to another member, and returns when `x` may be changed. Counted as `send`. The receiver
/// must call `recv` with the same tag, from 0 to 1,000,000, and a tensor of the same shape and dtype,
/// which both compare before data moves. Only these two take part; messages of one tag arrive in the
/// order in which they were sent.
///
/// With threads, and wherever calls are compared, it waits for the receiver's call: two ranks that
/// both send first wait for each other. Threads are told so at once, processes after
/// half a second at the earliest (see docs/errors.md).
///
/// Throws `InvalidArgument` for other tags, and for a `destination` that is no other member: on this
/// rank alone, as nobody else takes part.
void send(const at::Tensor& x, std::int64_t destination, const Group& group, std::int64_t tag = 0);

/// Returns what `source` sends, a tensor of the shape, dtype and device of `like` (whose values do
/// not matter). Counted as `recv`. Waits for the message, or with `async_op` returns at once, with
/// all engines, and waits when the result is first used; the time limit counts from the call between
/// processes. Two ranks that exchange tensors can both receive asynchronously, then send, then use
/// what they received; `permute` is simpler. Throws as `send` does.
[[nodiscard]] at::Tensor recv(const at::Tensor& like, std::int64_t source, const Group& group,
                              std::int64_t tag = 0, const CollectiveOptions& options = {});

/// Returns all members' bytes, which may differ in length: for small things such as names. Counted
/// as `all_gather_object`.
[[nodiscard]] std::vector<std::string> all_gather_object(const std::string& bytes,
                                                         const Group& group);

/// Waits until the values of an asynchronous result are there, and returns it, a plain tensor now.
/// Returns any other tensor at once. Throws `CommError` when the collective failed.
at::Tensor wait(const at::Tensor& x);

/// True for an asynchronous result that was neither used nor waited for.
[[nodiscard]] bool is_pending(const at::Tensor& x);

}  // namespace tessera
