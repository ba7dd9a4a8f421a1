#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/check.h"
#include "tessera/comm/launch_environment.h"
#include "tessera/comm/launch_values.h"

namespace tessera::detail {
namespace {

template <typename Value>
void set_once(std::optional<Value>& flag, std::string_view name, Value value) {
  TESSERA_CHECK(!flag, "launch: ", name, " is given twice");
  flag = value;
}

void set_flag(LaunchFlags& flags, std::string_view name, std::string_view value) {
  const std::string what = concat(name, ' ');
  if (name == "--ranks") {
    set_once(flags.ranks, name, read_integer(what, value, 1, kMostRanks));
  } else if (name == "--engine") {
    set_once(flags.engine, name, read_engine(what, value));
  } else {
    set_once(flags.timeout, name, read_timeout(what, value));
  }
}

}  // namespace

LaunchFlags take_launch_flags(int& argc, char** argv) {
  LaunchFlags flags;
  std::vector<char*> others;
  bool has_ended = false;
  for (int i = 0; i < argc; ++i) {
    const std::string_view argument = argv[i];
    const std::string_view name = argument.substr(0, argument.find('='));
    has_ended = has_ended || argument == "--";
    const bool is_ours = name == "--ranks" || name == "--engine" || name == "--timeout";
    if (i == 0 || has_ended || !is_ours) {
      others.push_back(argv[i]);
    } else if (name.size() < argument.size()) {
      set_flag(flags, name, argument.substr(name.size() + 1));
    } else {
      TESSERA_CHECK(i + 1 < argc, "launch: ", name, " is given without a value");
      set_flag(flags, name, argv[++i]);
    }
  }
  if (others.size() == static_cast<std::size_t>(argc)) return flags;
  for (std::size_t i = 0; i < others.size(); ++i) argv[i] = others[i];
  argc = static_cast<int>(others.size());
  argv[argc] = nullptr;
  return flags;
}

}  // namespace tessera::detail
