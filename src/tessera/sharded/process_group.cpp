#include "tessera/sharded/process_group.h"

#include "tessera/base/check.h"
#include "tessera/comm/world.h"

namespace tessera::sharded {
namespace {

/// Of the calling rank: ranks may be threads of one process.
thread_local std::optional<Group> current;

}  // namespace

LoadWithProcessGroup::LoadWithProcessGroup(const Group& group) {
  TESSERA_CHECK(
      !current.has_value(), "load_with_process_group: group ", group.name(),
      " given, but ProcessGroup already set by previous \"load_with_process_group\" context "
      "manager: ",
      current->name(), "; end that scope first");
  current = group;
}

LoadWithProcessGroup::~LoadWithProcessGroup() { current.reset(); }

LoadWithProcessGroup load_with_process_group(const Group& group) {
  return LoadWithProcessGroup(group);
}

Group current_process_group() { return current ? *current : World::current().group(); }

}  // namespace tessera::sharded
