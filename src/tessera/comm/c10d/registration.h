#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tessera/comm/c10d/engines.h"
#include "tessera/comm/c10d/key_store.h"
#include "tessera/comm/c10d/process_identity.h"

namespace tessera::detail {

/// Makes this process rank `rank` of a world of `size` that meets in `store`, and returns all
/// ranks' processes. All ranks call it; it returns when all have.
///
/// Throws `InvalidArgument`, on every rank that is still in here, when ranks were given different
/// sizes or options or one rank was given twice; `CommError` when somebody has not come within the
/// timeout, counted from `begin`.
[[nodiscard]] std::vector<ProcessIdentity> register_rank(
    KeyStore& store, std::int64_t rank, std::int64_t size, const Rendezvous& rendezvous,
    const WorldOptions& options, std::chrono::steady_clock::time_point begin);

/// Returns true when all of these ranks have called this with the same key, false after the
/// deadline. Calls `look_around` from time to time, which may throw.
[[nodiscard]] bool meet(KeyStore& store, const std::string& key,
                        const std::vector<std::int64_t>& ranks, std::int64_t rank,
                        std::chrono::steady_clock::time_point deadline,
                        const std::function<void()>& look_around);

}  // namespace tessera::detail
