#include "terminal.h"

#include <algorithm>
#include <cstdlib>

#include <sys/ioctl.h>
#include <unistd.h>

#include "tessera/base/concat.h"

namespace tessera::tools {
namespace {

std::string repeated(std::string_view text, std::int64_t count) {
  std::string result;
  for (std::int64_t i = 0; i < count; ++i) result += text;
  return result;
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// See no-color.org.
bool wants_color() {
  return isatty(STDOUT_FILENO) != 0 && variable("NO_COLOR").empty() && variable("TERM") != "dumb";
}

std::int64_t columns() {
  winsize size{};
  if (isatty(STDOUT_FILENO) == 0 || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 ||
      size.ws_col == 0) {
    return 100;
  }
  return std::clamp<std::int64_t>(size.ws_col, 60, 120);
}

}  // namespace

PictureOptions Style::picture(std::int64_t max_width) const {
  return {.ascii = ascii, .color = color, .max_width = max_width};
}

std::string Style::bold(std::string_view text) const { return escaped("1", text); }

std::string Style::dim(std::string_view text) const { return escaped("2", text); }

std::string Style::green(std::string_view text) const { return escaped("32", text); }

std::string Style::escaped(const char* code, std::string_view text) const {
  return color ? concat("\x1b[", code, 'm', text, "\x1b[0m") : std::string(text);
}

std::string Style::heading(std::string_view text) const {
  const char* across = ascii ? "-" : "─";
  const auto used = static_cast<std::int64_t>(picture_width(text)) + 4;
  return concat(dim(repeated(across, 2)), ' ', bold(text), ' ',
                dim(repeated(across, std::max<std::int64_t>(width - used, 0))), '\n');
}

std::string Style::bar(std::int64_t length) const { return repeated(ascii ? "#" : "▇", length); }

Style standard_output_style(ColorMode color, bool ascii) {
  const bool painted =
      color == ColorMode::always || (color == ColorMode::automatic && wants_color());
  return {ascii, painted, columns()};
}

}  // namespace tessera::tools
