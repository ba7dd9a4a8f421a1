#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <c10/util/intrusive_ptr.h>

#include "tessera/comm/mpi/mpi_pieces.h"

namespace c10d {
class Backend;
}

namespace tessera::detail {

class MpiRuntime;

/// Makes the c10d backend of a group of ranks over MPI's nonblocking operations; all of them call
/// it, and `MpiRuntime::make_comm`'s condition holds.
///
/// It moves every dtype, reduces those that MPI knows, and takes lists of tensors of different sizes.
/// What has more elements than `most` goes in pieces; less than MPI's own limit is for tests.
[[nodiscard]] c10::intrusive_ptr<c10d::Backend> make_mpi_backend(
    std::shared_ptr<MpiRuntime> runtime, const std::vector<std::int64_t>& ranks,
    std::int64_t member, std::int64_t most = kMostInt);

}  // namespace tessera::detail
