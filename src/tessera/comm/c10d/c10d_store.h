#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include <c10/util/intrusive_ptr.h>

#include "tessera/comm/c10d/engines.h"
#include "tessera/comm/c10d/key_store.h"

namespace c10d {
class Store;
}

namespace tessera::detail {

/// Opens the store of a rendezvous: rank 0 serves it, unless somebody else does. Waits for it until
/// the deadline.
///
/// Throws `InvalidArgument` for an address or port that cannot be used, and a file whose folder
/// others may enter; `CommError` when nobody serves the store by the deadline.
[[nodiscard]] c10::intrusive_ptr<c10d::Store> open_store(
    std::int64_t rank, const Rendezvous& rendezvous,
    std::chrono::steady_clock::time_point deadline);

/// The part of a store whose keys begin with `prefix`.
[[nodiscard]] c10::intrusive_ptr<c10d::Store> prefixed(const c10::intrusive_ptr<c10d::Store>& store,
                                                       const std::string& prefix);

[[nodiscard]] std::unique_ptr<KeyStore> make_key_store(c10::intrusive_ptr<c10d::Store> store);

}  // namespace tessera::detail
