#include "tessera/comm/group.h"

#include "tessera/comm/world_state.h"

namespace tessera {

const std::vector<std::int64_t>& Group::ranks() const { return state_->ranks; }

std::int64_t Group::size() const { return static_cast<std::int64_t>(state_->ranks.size()); }

std::int64_t Group::index() const { return state_->index; }

const std::string& Group::name() const { return state_->name.get(); }

World Group::world() const { return World(detail::world_of(*this)); }

const char* Group::engine() const { return detail::world_of(*this)->engine_of(*state_); }

}  // namespace tessera
