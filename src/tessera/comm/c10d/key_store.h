#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace tessera::detail {

/// Keys and values that all ranks see: what Tessera needs of a `c10d::Store`.
///
/// Throws what the store throws, a `std::exception`, when it cannot be reached.
class KeyStore {
 public:
  virtual ~KeyStore() = default;

  virtual void set(const std::string& key, const std::string& value) = 0;
  /// The value, if there is one already. Does not wait for it.
  [[nodiscard]] virtual std::optional<std::string> find(const std::string& key) = 0;
  /// Adds to a number, which begins with 0, and returns the sum.
  virtual std::int64_t add(const std::string& key, std::int64_t amount) = 0;
  /// The same store, usable from another thread at the same time.
  [[nodiscard]] virtual std::unique_ptr<KeyStore> clone() = 0;
};

}  // namespace tessera::detail
