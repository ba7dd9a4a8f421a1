// Says hello from every rank, and adds up their numbers. Runs unchanged alone and under launchers:
//
//     00_hello_mesh --ranks 4
//     tessera_run --nproc-per-node 4 00_hello_mesh
//     torchrun --no-python --nproc-per-node 4 00_hello_mesh
//     mpirun -n 4 00_hello_mesh

#include <iostream>

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>

#include "tessera/base/concat.h"
#include "tessera/base/error.h"
#include "tessera/comm/collectives.h"
#include "tessera/comm/device_mesh.h"
#include "tessera/comm/world.h"

int main(int argc, char** argv) {
  return tessera::launch(argc, argv, [](tessera::World& world) {
    const auto mesh = tessera::init_device_mesh("cpu", {world.size()}, {"all"});
    const at::Tensor own = at::full({1}, world.rank(), at::kLong);
    const at::Tensor sum = tessera::all_reduce(own, tessera::ReduceOp::sum, mesh);

    const auto total = sum.item<std::int64_t>();
    // In one piece: the ranks may be threads that share the output.
    std::cout << tessera::concat("rank ", world.rank(), " of ", world.size(), " (", world.engine(),
                                 ") on ", mesh, ": the ranks add up to ", total, '\n')
              << std::flush;
    if (total != world.size() * (world.size() - 1) / 2) throw tessera::Error("the sum is wrong");
  });
}
