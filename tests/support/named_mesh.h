#pragma once

#include "tessera/layout/mesh_shape.h"

namespace tessera::test {

/// [dp=2, tp=2], the mesh of most examples.
inline const MeshShape& mesh_2x2() {
  static const MeshShape mesh({2, 2}, {"dp", "tp"});
  return mesh;
}

}  // namespace tessera::test
