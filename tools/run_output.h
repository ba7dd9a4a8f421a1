#pragma once

#include <string>
#include <string_view>

#include "run_descriptor.h"

namespace tessera::tools {

/// Copies what one rank prints: whole lines with a prefix to one of our own outputs, and everything
/// as it is to a log file.
class OutputCopier {
 public:
  /// Reads from `source`. Without a log file, `log` is not open.
  OutputCopier(Descriptor source, int destination, std::string prefix, Descriptor log);

  /// The descriptor to wait for; -1 at the end of the output.
  [[nodiscard]] int source() const { return source_.number(); }
  /// True when the destination does not take any more.
  [[nodiscard]] bool is_broken() const { return is_broken_; }

  /// Copies what there is; call it when the source is readable.
  void copy_some();
  /// Prints what has no end of line yet, and stops.
  void finish();

 private:
  void print_lines(bool is_last);
  void print(std::string_view line);

  Descriptor source_;
  int destination_;
  std::string prefix_;
  Descriptor log_;
  std::string pending_;
  bool is_broken_ = false;
};

}  // namespace tessera::tools
