#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tessera/comm/c10d/group_watch.h"
#include "tessera/comm/world_state.h"

namespace tessera::detail {

/// What worlds of processes have in common: they know their peers, and end in an orderly way.
class ProcessWorld : public WorldState {
 public:
  void fail(const std::string& what) override { failure_ = what; }

 protected:
  ProcessWorld(std::int64_t size, const WorldOptions& options, std::shared_ptr<Peers> peers);

  [[nodiscard]] const std::shared_ptr<Peers>& peers() const { return peers_; }
  /// The group's watch, always the same: a group that failed to connect has failed too.
  [[nodiscard]] const std::shared_ptr<GroupWatch>& watch_of(const GroupState& group);

  /// Tells the others that this rank ends, and why. Returns the reason, which is empty when its
  /// function has returned. To be called once, in the destructor.
  std::string post_end();

  /// How long a rank that ends after a failure stays for the others to learn of it.
  static constexpr std::chrono::milliseconds kFarewell{700};

 private:
  std::shared_ptr<Peers> peers_;
  std::string failure_;
  std::map<std::vector<std::int64_t>, std::shared_ptr<GroupWatch>> watches_;
};

}  // namespace tessera::detail
