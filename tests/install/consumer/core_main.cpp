#include <iostream>

#include "tessera/layout/chunk.h"

int main() {
  for (int index = 0; index < 4; ++index) {
    std::cout << tessera::chunk_extent(5, 4, index) << ' ';
  }
  std::cout << '\n';
}
