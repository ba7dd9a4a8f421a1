#include "tessera/comm/c10d/gloo_threads.h"

#ifdef __linux__
#include <filesystem>
#include <fstream>
#include <string>

#include <sched.h>
#endif

namespace tessera::detail {

#ifdef __linux__

void calm_gloo_threads() noexcept {
  try {
    for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
      std::string name;
      std::ifstream(thread.path() / "comm") >> name;
      if (name != "gloo_tcp_loop") continue;
      const pid_t id = std::stoi(thread.path().filename());
      if (sched_getscheduler(id) != SCHED_OTHER) continue;
      const sched_param usual{};
      (void)sched_setscheduler(id, SCHED_BATCH, &usual);
    }
  } catch (const std::exception&) {
    // Only slower: /proc cannot be read, or a thread has ended meanwhile.
  }
}

#else

void calm_gloo_threads() noexcept {}

#endif

}  // namespace tessera::detail
