#pragma once

#include <exception>
#include <string>

namespace tessera::detail {

/// Returns what an exception says, and those nested in it where they say more.
[[nodiscard]] std::string failure_text(const std::exception_ptr& error);

/// Tells people and launchers why this process fails: writes `program: text` to stderr and, when a
/// launcher asks for it by TORCHELASTIC_ERROR_FILE, to that file, in the form that torchrun shows
/// and from which tessera_run finds out who failed first.
void report_failure(const std::string& program, const std::string& text,
                    const std::exception_ptr& error);

}  // namespace tessera::detail
