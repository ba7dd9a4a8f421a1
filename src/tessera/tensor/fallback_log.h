#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera::detail {

/// Lists, while alive, the ops of the calling rank that no rule served: whose inputs were replicated.
/// Logs nest; the innermost one gets them.
class FallbackLog {
 public:
  FallbackLog();
  ~FallbackLog();
  FallbackLog(const FallbackLog&) = delete;
  FallbackLog& operator=(const FallbackLog&) = delete;

  [[nodiscard]] const std::vector<std::string>& ops() const { return ops_; }

  /// Adds an op to the calling rank's log, if there is one.
  static void note(std::string_view op);

 private:
  std::vector<std::string> ops_;
  FallbackLog* previous_;
};

}  // namespace tessera::detail
