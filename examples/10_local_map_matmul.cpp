// A matrix product whose inner dim is spread over the ranks: every rank multiplies its columns of W
// with its rows of X, and the products add up to Y. The function is written for plain tensors, and
// `local_map` makes it one of DTensors.
//
//     10_local_map_matmul --ranks 4

#include <iostream>

#include <ATen/ATen.h>

#include "tessera/base/error.h"
#include "tessera/comm/collectives.h"
#include "tessera/comm/traffic.h"
#include "tessera/comm/world.h"
#include "tessera/tensor/dtensor.h"
#include "tessera/tensor/local_map.h"

using tessera::ReduceOp;
using tessera::Replicate;
using tessera::Shard;

int main(int argc, char** argv) {
  return tessera::launch(argc, argv, [](tessera::World& world) {
    const auto mesh = tessera::init_device_mesh("cpu", {world.size()});

    // What each rank does with its parts: `a` has all rows and some columns, `b` the rows to match.
    const auto multiply = [&](const at::Tensor& a, const at::Tensor& b) {
      return tessera::all_reduce(at::mm(a, b), ReduceOp::sum, mesh);
    };
    // After the reduction every rank has the whole product: a copy.
    const auto matmul = tessera::local_map(
        multiply, {.out_placements = {{Replicate()}}, .in_placements = {{Shard(1)}, {Shard(0)}}});

    // Equal on all ranks; distribute_tensor would take rank 0's values otherwise.
    const at::Tensor w = at::arange(12 * 8, at::kDouble).reshape({12, 8}).sin();
    const at::Tensor x = at::arange(8 * 16, at::kDouble).reshape({8, 16}).cos();
    const at::Tensor w_parts = tessera::distribute_tensor(w, mesh, {Shard(1)}).requires_grad_();
    const at::Tensor x_parts = tessera::distribute_tensor(x, mesh, {Shard(0)});

    tessera::CommDebugMode traffic;
    at::Tensor y;
    {
      const auto scope = traffic.record();
      y = matmul(w_parts, x_parts);
    }
    if (traffic.total_count() != 1) throw tessera::Error("only the all_reduce should communicate");
    if (!at::allclose(tessera::full_tensor(y), at::mm(w, x))) throw tessera::Error("Y is wrong");

    // Gradients flow through the function and its all_reduce.
    tessera::full_tensor(y).sum().backward();
    const at::Tensor expected = at::mm(at::ones({12, 16}, at::kDouble), x.t());
    if (!at::allclose(tessera::full_tensor(w_parts.grad()), expected)) {
      throw tessera::Error("the gradient is wrong");
    }
    if (world.rank() == 0) {
      std::cout << "Y = W X is " << tessera::layout_of(y) << " after " << traffic.total_count()
                << " collective\n";
    }
  });
}
