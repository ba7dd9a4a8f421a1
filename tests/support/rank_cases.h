#pragma once

#include <functional>
#include <iostream>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "tessera/base/concat.h"
#include "tessera/base/error.h"
#include "tessera/comm/world.h"

namespace tessera::test {

/// What a program can do as a rank, by name.
using RankCases = std::map<std::string, std::function<void(World&)>>;

/// The main function of a program that is one rank of whatever it is started by: `program NAME` runs
/// the case of that name, and fails when an expectation does. Returns the exit code.
inline int run_rank_case(int argc, char** argv, const RankCases& cases) {
  const std::string name = argc > 1 ? argv[1] : "";
  const auto found = cases.find(name);
  if (found == cases.end()) {
    std::cerr << argv[0] << ": no case called \"" << name << "\"\n";
    return 2;
  }
  return launch(argc, argv, [&](World& world) {
    found->second(world);
    if (::testing::Test::HasFailure()) {
      throw Error(concat(name, " failed on rank ", world.rank()));
    }
  });
}

}  // namespace tessera::test
