#include "tessera/base/check.h"
#include "tessera/comm/c10d/engines.h"

// In place of gloo_world.cpp where gloo's headers are missing.
namespace tessera::detail {

bool has_gloo() { return false; }

std::shared_ptr<WorldState> make_gloo_world(std::int64_t /*rank*/, std::int64_t /*size*/,
                                            const Rendezvous& /*rendezvous*/,
                                            const WorldOptions& /*options*/) {
  throw InvalidArgument(
      "launch: the gloo engine is not built in: its headers were missing when Tessera was "
      "configured; install libgloo-dev, configure again (with -DTESSERA_WITH_GLOO=ON to be sure) "
      "and rebuild, or use --engine threads or mpi");
}

}  // namespace tessera::detail
