#pragma once

#include <cstdint>

namespace tessera::detail {

/// The largest tag of a message between two ranks, the same for all engines: small enough that three
/// tags of an engine can stand for one of ours, whatever MPI is used.
inline constexpr std::int64_t kLargestTag = 1'000'000;

}  // namespace tessera::detail
