#include "tessera/comm/c10d/process_world.h"

#include <exception>

namespace tessera::detail {

ProcessWorld::ProcessWorld(std::int64_t size, const WorldOptions& options,
                           std::shared_ptr<Peers> peers)
    : WorldState(peers->rank(), size, options), peers_(std::move(peers)) {}

const std::shared_ptr<GroupWatch>& ProcessWorld::watch_of(const GroupState& group) {
  auto& watch = watches_[group.ranks];
  if (watch == nullptr) {
    watch = std::make_shared<GroupWatch>(group.name.get(), group.ranks, options().timeout,
                                         options().check, peers_);
  }
  return watch;
}

std::string ProcessWorld::post_end() {
  std::string reason = failure_;
  if (reason.empty() && std::uncaught_exceptions() > 0) {
    reason = peers_->first_failure();
    if (reason.empty()) reason = "its function threw an exception";
  }
  peers_->post_left(reason);
  return reason;
}

}  // namespace tessera::detail
