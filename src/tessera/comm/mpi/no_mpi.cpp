#include "tessera/base/check.h"
#include "tessera/comm/c10d/engines.h"

// In place of mpi_world.cpp where MPI is missing.
namespace tessera::detail {

bool has_mpi() { return false; }

std::shared_ptr<WorldState> make_mpi_world(const WorldOptions& /*options*/) {
  throw InvalidArgument(
      "launch: the mpi engine is not built in: MPI was missing when Tessera was configured; "
      "install libopenmpi-dev and openmpi-bin, configure again (with -DTESSERA_WITH_MPI=ON to be "
      "sure) and rebuild, or use --engine threads or gloo");
}

}  // namespace tessera::detail
