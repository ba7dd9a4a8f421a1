#pragma once

#include <functional>
#include <string>
#include <vector>

#include <c10/util/intrusive_ptr.h>

#include "comm/process/run_processes.h"

namespace c10d {
class ProcessGroup;
class Store;
}  // namespace c10d

namespace tessera::test {

using GroupPtr = c10::intrusive_ptr<c10d::ProcessGroup>;

/// What moves the bytes of a process group.
enum class GroupBackend {
  gloo,
  /// One that is called `relay` and lets gloo do the work, so that to Tessera it is an engine of which
  /// nothing is known. It refuses to be waited for by and by, as engines may whose time limit ends an
  /// operation.
  relay,
};

/// A process group as a program that uses c10d makes it. The members meet in a file under a name.
[[nodiscard]] GroupPtr make_process_group(const std::string& file, const std::string& name,
                                          int rank, int size,
                                          GroupBackend backend = GroupBackend::gloo);
/// One without a backend.
[[nodiscard]] GroupPtr make_bare_process_group(const std::string& file, int rank, int size);

/// Where processes leave signs for each other that no process group carries.
[[nodiscard]] c10::intrusive_ptr<c10d::Store> open_signs(const std::string& file);

/// Runs `fn` on processes that have a process group of all of them; returns what they printed. `fn`
/// also gets the file in which further process groups can meet.
std::vector<ProcessResult> with_process_groups(
    int size, const std::function<void(GroupPtr, const std::string& file)>& fn,
    GroupBackend backend = GroupBackend::gloo);

/// Expects all processes to have returned in time, and their expectations to hold.
void expect_success(const std::vector<ProcessResult>& results);

}  // namespace tessera::test
