#include <iostream>

#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>

#include "tessera/layout/chunk.h"

int main() {
  const at::Tensor whole = at::ones({5, 3});
  for (int index = 0; index < 4; ++index) {
    const tessera::Extent rows = tessera::chunk_extent(whole.size(0), 4, index);
    std::cout << whole.narrow(0, rows.begin, rows.size).sizes() << ' ';
  }
  std::cout << '\n';
}
