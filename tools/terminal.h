#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "plan_arguments.h"
#include "tessera/layout/picture.h"

namespace tessera::tools {

/// How text is shown on this output.
struct Style {
  bool ascii = false;
  bool color = false;
  /// Columns to use.
  std::int64_t width = 100;

  /// How to draw pictures of at most `max_width` columns.
  [[nodiscard]] PictureOptions picture(std::int64_t max_width) const;
  [[nodiscard]] std::string bold(std::string_view text) const;
  [[nodiscard]] std::string dim(std::string_view text) const;
  /// A heading that runs across the output.
  [[nodiscard]] std::string heading(std::string_view text) const;
  [[nodiscard]] std::string green(std::string_view text) const;
  /// A bar of `length` columns.
  [[nodiscard]] std::string bar(std::int64_t length) const;

 private:
  [[nodiscard]] std::string escaped(const char* code, std::string_view text) const;
};

/// Returns the style for standard output: colours on a terminal that wants them, and its width, or
/// 100 columns where that is unknown.
[[nodiscard]] Style standard_output_style(ColorMode color, bool ascii);

}  // namespace tessera::tools
