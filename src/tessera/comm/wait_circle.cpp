#include "tessera/comm/wait_circle.h"

#include <algorithm>
#include <map>

#include "tessera/base/concat.h"

namespace tessera::detail {

WaitCircle find_wait_circle(std::int64_t rank,
                            const std::function<std::vector<std::int64_t>(std::int64_t)>& awaited) {
  // Who waits for each rank that was reached; the nearest come first.
  std::map<std::int64_t, std::int64_t> waiting_for;
  std::vector<std::int64_t> reached = {rank};
  for (std::size_t i = 0; i < reached.size() && !waiting_for.contains(rank); ++i) {
    const std::int64_t waiting = reached[i];
    for (const auto other : awaited(waiting)) {
      if (waiting_for.emplace(other, waiting).second) reached.push_back(other);
    }
  }
  if (!waiting_for.contains(rank)) return {};
  WaitCircle circle = {rank};
  for (auto each = waiting_for.at(rank); each != rank; each = waiting_for.at(each)) {
    circle.push_back(each);
  }
  std::reverse(circle.begin(), circle.end());
  std::rotate(circle.begin(), std::min_element(circle.begin(), circle.end()), circle.end());
  return circle;
}

std::string describe_wait_circle(const WaitCircle& circle,
                                 const std::function<WaitingCall(std::int64_t)>& call_of) {
  std::vector<std::string> waits;
  for (std::size_t i = 0; i < circle.size(); ++i) {
    const WaitingCall wait = call_of(circle[i]);
    waits.push_back(concat("rank ", circle[i], " waits in ", wait.call, " on group ", wait.group,
                           " for rank ", circle[(i + 1) % circle.size()]));
  }
  return concat("deadlock, nobody can go on: ", joined(waits, "; "));
}

}  // namespace tessera::detail
