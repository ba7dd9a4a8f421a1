#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <c10/core/ScalarType.h>

#include "tessera/comm/batch_route.h"
#include "tessera/comm/group.h"
#include "tessera/comm/transport.h"
#include "tessera/plan/redistribute_plan.h"

namespace tessera::detail {

class WorldState;

/// What is asked of a redistribution, of one rank.
struct RouteQuestion {
  const Layout& from;
  const Layout& to;
  at::ScalarType dtype;
  std::int64_t staging_budget;
};

/// One rank's way through a plan, with everything found and worded that need not be found and
/// worded again the next time.
struct Route {
  struct Leg {
    /// Of the plan.
    const Step* step;
    const RankStep* own;
    Traffic traffic;
    /// The ranks that take part together with this one; nothing for a step without traffic.
    std::optional<Group> group;
    /// The step spelled out as messages; filled in when first wanted, see `messages_of`.
    std::shared_ptr<const RankStep> messages;
  };

  /// How the participants compare what they are about to do.
  enum class Agreement {
    /// In an exchange of its own, before the first leg.
    before,
    /// In the first leg with traffic: all of them take part in it, as in all others.
    in_first_leg,
    /// In each leg with traffic, by those that take part in it. Where no group of all participants
    /// can be made, as in a world of adopted process groups.
    in_every_leg,
  };

  Route(RedistributePlan its_plan, std::int64_t its_rank)
      : plan(std::move(its_plan)), rank(its_rank), own(plan.for_rank(rank)) {}

  RedistributePlan plan;
  std::int64_t rank;
  std::shared_ptr<const RankPlan> own;
  /// What this rank's tensor must look like; nothing outside of the first mesh.
  std::optional<Shape> in_shape;
  /// The steps in which this rank takes part; none when it keeps what it has.
  std::vector<Leg> legs;
  /// How many of them there are up to the last one with traffic.
  std::size_t legs_to_wait_for = 0;
  /// Who must agree on the redistribution before its first byte moves; nothing when every rank
  /// keeps to itself.
  std::optional<Group> participants;
  Agreement agreement = Agreement::before;
  Fingerprint fingerprint;
  std::string cause;
};

/// The name under which ranks compare redistributions.
inline constexpr const char* kRedistribute = "redistribute";

/// Returns the leg's step as messages.
[[nodiscard]] const std::shared_ptr<const RankStep>& messages_of(Route& route, Route::Leg& leg);

/// The routes that one rank has taken. Used by that rank alone.
class RouteCache {
 public:
  /// Returns the route, found on first use. It stays valid as long as the pointer is kept.
  const std::shared_ptr<Route>& find(WorldState& world, const RouteQuestion& question);

  /// Those of several tensors at once.
  [[nodiscard]] BatchRouteCache& batches() { return batches_; }

 private:
  struct Entry {
    Layout from;
    Layout to;
    at::ScalarType dtype;
    std::int64_t staging_budget;
    std::shared_ptr<Route> route;
  };

  std::unordered_multimap<std::size_t, Entry> entries_;
  BatchRouteCache batches_;
};

}  // namespace tessera::detail
