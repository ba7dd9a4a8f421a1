#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/comm/claims.h"
#include "tessera/layout/placement.h"
#include "tessera/plan/step.h"

namespace at {
class Tensor;
}

namespace tessera::detail {

/// What all ranks of a group must agree on before the data of a collective moves. Filled in by the
/// caller of a transport; compared by the transport, which throws on every rank when they differ.
struct Fingerprint {
  /// The c10d name of the operation, `"all_reduce"`, ...; a literal.
  const char* op = "";
  /// Whatever must be equal, in words: `"f32[4,3] sum"`. Shown to the user on a mismatch, so it
  /// reads like the call: dtype, shape as far as it must agree, reduce op, root, splits.
  std::string arguments;

  /// True for one of a message between two members.
  [[nodiscard]] bool is_message() const {
    const std::string_view name = op;
    return name == "send" || name == "recv";
  }
};

/// An operation under way.
class Pending {
 public:
  virtual ~Pending() = default;
  /// Returns once the operation is complete; throws `CommError` when it failed or timed out. Safe
  /// to call again.
  virtual void wait() = 0;
  [[nodiscard]] virtual bool is_done() = 0;
};
using PendingPtr = std::shared_ptr<Pending>;

/// How the ranks of one group exchange bytes: one object per group and rank.
///
/// Tensors are contiguous, and stay alive and unchanged until the returned operation was waited
/// for. `counts` are numbers of elements, one per member, known to every member. Members are
/// numbered by their place in the group. Operations of a group must be issued in the same order by
/// all members; `check` finds out when they are not.
class Transport {
 public:
  virtual ~Transport() = default;

  /// `"threads"`, `"gloo"`, `"mpi"`, or the name of an adopted backend.
  [[nodiscard]] virtual const char* engine() const = 0;

  /// Throws `CommError` on all members unless all passed equal fingerprints; sequence numbers and
  /// claims (Note [Claims]) are compared too. Call it right before the operation that it describes:
  /// the threads engine compares when that is issued, where it costs nothing.
  virtual void check(const Fingerprint& fingerprint) = 0;
  /// The same, at once, and returns the members' `record`s one behind the other, which must have the
  /// same length: for what differs from rank to rank and must fit together, such as splits.
  virtual std::vector<std::int64_t> check_records(const Fingerprint& fingerprint,
                                                  std::span<const std::int64_t> record) = 0;

  /// True when `all_reduce` and `reduce_scatter` can reduce tensors of the dtype of `data` by `op`.
  /// Unless overridden: float32 and float64 by all but bitwise ops, and int8, uint8, int32, int64
  /// by all but avg. The collectives convert others (see `collectives.h`), or gather them.
  [[nodiscard]] virtual bool can_reduce(const at::Tensor& data, ReduceOp op) const;

  /// Reduces `data` over all members, in place. `avg` is a sum divided by the number of members.
  virtual PendingPtr all_reduce(const at::Tensor& data, ReduceOp op) = 0;
  /// The same from `in` to `out`. Unless overridden: a copy, reduced in place.
  virtual PendingPtr all_reduce_into(const at::Tensor& out, const at::Tensor& in, ReduceOp op);
  /// `out` becomes the members' `in`, one behind the other.
  virtual PendingPtr all_gather(const at::Tensor& out, const at::Tensor& in,
                                std::span<const std::int64_t> counts) = 0;
  /// `in` is one part per member; `out` becomes the reduction of all members' part for this one.
  virtual PendingPtr reduce_scatter(const at::Tensor& out, const at::Tensor& in,
                                    std::span<const std::int64_t> counts, ReduceOp op) = 0;
  virtual PendingPtr all_to_all(const at::Tensor& out, const at::Tensor& in,
                                std::span<const std::int64_t> receive_counts,
                                std::span<const std::int64_t> send_counts) = 0;
  virtual PendingPtr broadcast(const at::Tensor& data, std::int64_t root) = 0;
  /// `out` is used on the root alone.
  virtual PendingPtr gather(const at::Tensor& out, const at::Tensor& in,
                            std::span<const std::int64_t> counts, std::int64_t root) = 0;
  /// `in` is used on the root alone.
  virtual PendingPtr scatter(const at::Tensor& out, const at::Tensor& in,
                             std::span<const std::int64_t> counts, std::int64_t root) = 0;
  virtual PendingPtr send(const at::Tensor& data, std::int64_t to, std::int64_t tag) = 0;
  virtual PendingPtr receive(const at::Tensor& data, std::int64_t from, std::int64_t tag) = 0;
  virtual void barrier() = 0;

  /// True when ranks reach each other's memory, so that `exchange` can be used.
  [[nodiscard]] virtual bool exchanges_directly() const { return false; }
  /// Does one step of a plan, the members being the ranks of both of its meshes: copies, or reduces,
  /// every rank's boxes straight out of the senders' tensors, which need not be contiguous. A tensor
  /// is undefined where a rank is outside of the mesh. `own` must stay alive as the tensors must.
  virtual PendingPtr exchange(const at::Tensor& out, const at::Tensor& in,
                              std::shared_ptr<const RankStep> own);

  /// Where this rank's claims are collected; they must outlive the transport.
  void set_claims(Claims* claims) { claims_ = claims; }

 protected:
  /// Returns the claims to compare together with a fingerprint. None with a message, of which two
  /// members know.
  [[nodiscard]] Claims take_claims(const Fingerprint& fingerprint);

 private:
  Claims* claims_ = nullptr;
};

}  // namespace tessera::detail
