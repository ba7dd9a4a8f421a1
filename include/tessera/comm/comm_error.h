#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "tessera/base/error.h"

namespace tessera {

/// A communication failed: ranks called different things, one is gone, or one did not come in time.
///
/// Thrown on every rank that takes part and is still alive. The message names the operation, the
/// group, the ranks at fault and the time that passed. A group that failed stays failed: whatever is
/// called on it afterwards throws again at once. Other groups can still be used by those who handle
/// it; but with the mpi engine the whole job ends when such a rank's function returns, since MPI
/// cannot recover (see `docs/errors.md`).
class CommError : public Error {
 public:
  struct Where {
    /// The rank that throws.
    std::int64_t rank = -1;
    /// The group's name, `world` or `dp`, ...
    std::string group;
    /// The c10d name of the operation; `redistribute` while ranks compare redistributions,
    /// `connect` while the members of a group find each other when it is first used, `rendezvous`
    /// while all ranks do.
    std::string operation;
    /// Since the call, or since it was waited for; in whole milliseconds, so 0 is at once.
    std::chrono::milliseconds elapsed{0};
  };

  /// The message becomes `<operation> on group <group>, rank <rank>, after <elapsed> ms: <what>`.
  CommError(const std::string& what, Where where);

  /// The parts of `Where`.
  [[nodiscard]] std::int64_t rank() const { return where_.rank; }
  [[nodiscard]] const std::string& group() const { return where_.group; }
  [[nodiscard]] const std::string& operation() const { return where_.operation; }
  [[nodiscard]] std::chrono::milliseconds elapsed() const { return where_.elapsed; }

 private:
  Where where_;
};

}  // namespace tessera
