#pragma once

#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "tessera/base/concat.h"
#include "tessera/comm/group.h"

namespace tessera::sharded::detail {

/// A meeting of all members of a group before something happens: collects what each of them finds
/// wrong and what must be equal, and lets all go on or all throw. A member that found something wrong
/// throws that, the others an `InvalidArgument` that says who found what.
///
/// A mistake of one member must not leave the others waiting, or half of them changed. So nothing is
/// thrown before `meet`, where everybody learns of it. What is exchanged is not counted as traffic.
class Agreement {
 public:
  /// How a difference is told.
  enum class Wording {
    /// `src_rank=0 on rank: 0 does not match with src_rank=1 on rank: 1`.
    with_each_other,
    /// `dtype property does not match from different ranks! Found dtype=... on rank:0, and ...`.
    from_different_ranks,
  };

  /// `function` is named in messages.
  Agreement(std::string function, const Group& group, Wording wording = Wording::with_each_other)
      : function_(std::move(function)), group_(group), wording_(wording) {}

  /// Remembers `parts` as what is wrong on this rank, unless `ok` or something else is already.
  /// Returns `ok`.
  template <typename... Parts>
  bool require(bool ok, const Parts&... parts) {
    if (!ok && is_valid()) error_ = concat(function_, ": ", parts...);
    return ok;
  }
  /// Runs `check`; what it throws is remembered as what is wrong, and thrown again by `meet`.
  template <typename Check>
  void require_no_throw(const Check& check) {
    try {
      check();
    } catch (const std::exception& error) {
      remember(error);
    }
  }
  [[nodiscard]] bool is_valid() const { return error_.empty(); }

  /// Says what must be the same on all members, but for those that say the empty text.
  template <typename Value>
  void same(std::string name, const Value& value) {
    fields_.emplace_back(std::move(name), concat(value));
  }

  /// Returns once all members are here and agree. Without checks (`WorldOptions::check`) a member
  /// throws what it found itself, and nothing is compared.
  void meet();
  /// The same with or without checks, and returns all members' `bytes`.
  [[nodiscard]] std::vector<std::string> share(const std::string& bytes);

 private:
  /// Called where `error` is caught.
  void remember(const std::exception& error);
  void throw_own() const;
  [[nodiscard]] std::vector<std::string> exchange(const std::string& bytes);
  void compare(const std::string& name, const std::vector<std::string>& values) const;

  std::string function_;
  Group group_;
  Wording wording_;
  std::string error_;
  /// Set when what is wrong was thrown.
  std::exception_ptr thrown_;
  std::vector<std::pair<std::string, std::string>> fields_;
};

}  // namespace tessera::sharded::detail
