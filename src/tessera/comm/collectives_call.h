#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tessera/base/concat.h"
#include "tessera/comm/group.h"
#include "tessera/comm/transport.h"
#include "tessera/comm/world_state.h"

namespace tessera::detail {

/// One rank's call of a collective, until its data moves: collects what is wrong with the arguments,
/// then makes sure that all members call the same.
///
/// Arguments that are wrong on one rank only must not leave the others waiting. So nothing is thrown
/// before the members have met in `agree` or `share`, where the others learn of it.
class Call {
 public:
  using Clock = std::chrono::steady_clock;

  /// `function` is what the user called, `name` its c10d name; both are literals.
  Call(const char* function, const char* name, const Group& group);

  [[nodiscard]] const char* name() const { return name_; }
  [[nodiscard]] const Group& group() const { return group_; }
  [[nodiscard]] const std::shared_ptr<WorldState>& world() const { return world_; }
  /// Number of members, and this rank's place among them.
  [[nodiscard]] std::int64_t size() const { return group_.size(); }
  [[nodiscard]] std::int64_t index() const { return group_.index(); }
  [[nodiscard]] bool is_alone() const { return group_.size() == 1; }
  [[nodiscard]] Transport& transport() const;
  [[nodiscard]] Clock::time_point begin() const { return begin_; }

  /// Remembers `parts` as what is wrong, unless `ok` or something else is already. Returns `ok`.
  template <typename... Parts>
  bool require(bool ok, const Parts&... parts) {
    if (!ok && error_.empty()) error_ = concat(function_, ": ", parts...);
    return ok;
  }
  [[nodiscard]] bool is_valid() const { return error_.empty(); }

  /// Makes sure that all members call this with what `arguments()` returns; throws otherwise. Asks
  /// for it only when the arguments are valid. The comparison may be done by the operation that
  /// follows, unless nothing `moves`.
  template <typename Arguments>
  void agree(const Arguments& arguments, bool moves = true) {
    throw_if_invalid(0);
    if (is_compared()) compare(arguments(), moves);
  }

  /// The same at once, and returns all members' `record`s one behind the other. A record has
  /// `length` numbers; an invalid call may pass another.
  template <typename Arguments>
  std::vector<std::int64_t> share(const Arguments& arguments, std::vector<std::int64_t> record,
                                  std::int64_t length) {
    throw_if_invalid(length);
    if (is_alone()) return record;
    return exchange(is_compared() ? arguments() : std::string(), record);
  }

  /// Throws what is wrong with the arguments, if something is, without telling the other members.
  void throw_alone() const;

  /// True when members compare their calls: there are others, and checks are on.
  [[nodiscard]] bool is_compared() const { return is_compared_; }

  /// Throws a `CommError` about records that do not fit together, on all members at once, and makes
  /// the group unusable. `own` is this rank's call.
  [[noreturn]] void disagree(const std::string& what, const std::string& own);

 private:
  void throw_if_invalid(std::int64_t record_length);
  void compare(std::string arguments, bool moves);
  std::vector<std::int64_t> exchange(std::string arguments,
                                     const std::vector<std::int64_t>& record);

  const char* function_;
  const char* name_;
  Group group_;
  std::shared_ptr<WorldState> world_;
  SoleUse use_;
  Clock::time_point begin_;
  bool is_compared_;
  std::string error_;
};

/// `float32[4,3]`, with `*` for the size of `open_dim`.
[[nodiscard]] std::string describe(const at::Tensor& x, std::int64_t open_dim = -1);
/// `[2,1]`.
[[nodiscard]] std::string bracketed(const std::vector<std::int64_t>& numbers);

/// Waits for `x` if it is pending, and requires that it can be moved. `what` names it in messages.
bool require_tensor(Call& call, const at::Tensor& x, const char* what = "x");
/// Requires that `dim` is one of `ndim` dims, and makes a negative one count from the front.
bool require_dim(Call& call, std::int64_t ndim, std::int64_t& dim);
/// Requires that `member` is one of the group; `what` says which.
bool require_member(Call& call, std::int64_t member, const char* what);
/// Requires one size per member, none of them negative.
bool require_sizes(Call& call, const std::vector<std::int64_t>& sizes, const char* what);
/// The same, and that they add up to what `x` has along `dim`.
bool require_total(Call& call, const at::Tensor& x, std::int64_t dim,
                   const std::vector<std::int64_t>& sizes, const char* what);
/// Requires one size per member, this rank's being what `x` has along `dim`.
bool require_own_size(Call& call, const at::Tensor& x, std::int64_t dim,
                      const std::vector<std::int64_t>& sizes);
/// Requires that `op` can reduce the tensor's dtype.
bool require_reducible(Call& call, const at::Tensor& x, ReduceOp op);

}  // namespace tessera::detail
