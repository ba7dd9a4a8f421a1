#include "run_output.h"

#include <array>
#include <cerrno>
#include <cstddef>
#include <utility>

#include <unistd.h>

namespace tessera::tools {
namespace {

/// Longer lines are broken, so that a rank that never ends a line cannot fill our memory.
constexpr std::size_t kLongestLine = std::size_t{1} << 16;

bool write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::write(descriptor, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

}  // namespace

OutputCopier::OutputCopier(Descriptor source, int destination, std::string prefix, Descriptor log)
    : source_(std::move(source)),
      destination_(destination),
      prefix_(std::move(prefix)),
      log_(std::move(log)) {}

void OutputCopier::copy_some() {
  std::array<char, kLongestLine> buffer;
  const ssize_t count = ::read(source_.number(), buffer.data(), buffer.size());
  if (count < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (count <= 0) return finish();
  const std::string_view text(buffer.data(), static_cast<std::size_t>(count));
  if (log_.is_open() && !write_all(log_.number(), text)) log_.close();
  pending_ += text;
  print_lines(/*is_last=*/false);
}

void OutputCopier::finish() {
  print_lines(/*is_last=*/true);
  source_.close();
  log_.close();
}

void OutputCopier::print_lines(bool is_last) {
  std::string_view rest = pending_;
  std::string lines;
  while (!rest.empty()) {
    std::size_t length = rest.substr(0, kLongestLine).find('\n');
    const bool has_end = length != std::string_view::npos;
    if (!has_end && !is_last && rest.size() < kLongestLine) break;
    if (!has_end) length = std::min(rest.size(), kLongestLine);
    lines.append(prefix_).append(rest.substr(0, length)).push_back('\n');
    rest.remove_prefix(length + (has_end ? 1 : 0));
  }
  pending_.erase(0, pending_.size() - rest.size());
  print(lines);
}

void OutputCopier::print(std::string_view lines) {
  if (!is_broken_ && !write_all(destination_, lines)) is_broken_ = true;
}

}  // namespace tessera::tools
