#include "run_environment.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string_view>
#include <thread>

#include <unistd.h>

#include "tessera/base/concat.h"

namespace tessera::tools {

std::vector<std::string> make_environment(const RankEnvironment& rank) {
  const std::string own = concat(rank.rank);
  const std::string all = concat(rank.size);
  std::map<std::string_view, std::string> variables = {
      {"RANK", own},
      {"LOCAL_RANK", own},
      {"ROLE_RANK", own},
      {"WORLD_SIZE", all},
      {"LOCAL_WORLD_SIZE", all},
      {"ROLE_WORLD_SIZE", all},
      {"GROUP_RANK", "0"},
      {"GROUP_WORLD_SIZE", "1"},
      {"ROLE_NAME", "default"},
      {"MASTER_ADDR", "127.0.0.1"},
      {"MASTER_PORT", concat(rank.master_port)},
      {"TORCHELASTIC_RUN_ID", "tessera_run"},
      {"TORCHELASTIC_RESTART_COUNT", "0"},
      {"TORCHELASTIC_MAX_RESTARTS", "0"},
      {"TORCHELASTIC_USE_AGENT_STORE", "False"},
      {"TORCHELASTIC_ERROR_FILE", rank.error_file},
      {"TESSERA_RENDEZVOUS_FILE", rank.rendezvous_file},
  };
  if (std::getenv("OMP_NUM_THREADS") == nullptr) {
    // All ranks would take all cores otherwise.
    const std::int64_t cores = std::thread::hardware_concurrency();
    variables["OMP_NUM_THREADS"] = concat(std::max<std::int64_t>(cores / rank.size, 1));
  }
  std::vector<std::string> result;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    if (!variables.contains(text.substr(0, text.find('=')))) result.emplace_back(text);
  }
  for (const auto& [name, value] : variables) result.push_back(concat(name, '=', value));
  return result;
}

}  // namespace tessera::tools
