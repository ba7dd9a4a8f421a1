#pragma once

#include <string>

#include "tessera/base/error.h"
#include "tessera/comm/collectives.h"
#include "tessera/comm/world.h"

namespace tessera::test {

/// Runs `call`, which must throw `InvalidArgument`, and returns the text. On all ranks: nobody is left
/// waiting, and the group works afterwards.
template <typename Call>
std::string refusal(World& world, const Call& call) {
  std::string text = "nothing was thrown";
  try {
    call();
  } catch (const InvalidArgument& error) {
    text = error.what();
  }
  barrier(world.group());
  return text;
}

}  // namespace tessera::test
