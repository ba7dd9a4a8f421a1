// Heat on a plate: every point becomes the mean of its four neighbours, step after step. The plate is
// cut both ways over a mesh of two dims, so a rank needs the outermost points of the ranks next to it:
// its halo. They are sent with `permute`, along one mesh dim at a time.
//
//     14_local_map_halo_exchange --ranks 4

#include <iostream>
#include <vector>

#include <ATen/ATen.h>

#include "tessera/base/error.h"
#include "tessera/comm/collectives.h"
#include "tessera/comm/world.h"
#include "tessera/tensor/dtensor.h"
#include "tessera/tensor/local_map.h"

using tessera::Shard;

namespace {

/// Returns `x` with one more row (or column) at both ends of `dim`: those of the neighbours in the
/// group, and zeros at the border of the plate.
at::Tensor with_halo(const at::Tensor& x, std::int64_t dim, const tessera::Group& group) {
  const std::int64_t ranks = group.size();
  std::vector<std::int64_t> up;
  std::vector<std::int64_t> down;
  for (std::int64_t i = 0; i < ranks; ++i) {
    up.push_back(i + 1 < ranks ? i + 1 : -1);  // -1: to nobody.
    down.push_back(i - 1);
  }
  const at::Tensor before = tessera::permute(x.narrow(dim, x.size(dim) - 1, 1), up, group);
  const at::Tensor after = tessera::permute(x.narrow(dim, 0, 1), down, group);
  return at::cat({before, x, after}, dim);
}

/// The mean of the neighbours, of `x` with a border in the first and in the second dim.
at::Tensor mean_of_neighbours(const at::Tensor& tall, const at::Tensor& wide) {
  const std::int64_t rows = wide.size(0);
  const std::int64_t columns = tall.size(1);
  return (tall.narrow(0, 0, rows) + tall.narrow(0, 2, rows) + wide.narrow(1, 0, columns) +
          wide.narrow(1, 2, columns)) /
         4;
}

at::Tensor plain_step(const at::Tensor& plate) {
  return mean_of_neighbours(at::constant_pad_nd(plate, {0, 0, 1, 1}),
                            at::constant_pad_nd(plate, {1, 1, 0, 0}));
}

at::Tensor step(const tessera::DeviceMesh& mesh, const at::Tensor& part) {
  return mean_of_neighbours(with_halo(part, 0, mesh.group("y")),
                            with_halo(part, 1, mesh.group("x")));
}

}  // namespace

int main(int argc, char** argv) {
  return tessera::launch(argc, argv, [](tessera::World& world) {
    const std::int64_t rows = world.size() % 2 == 0 ? 2 : 1;
    const std::int64_t columns = world.size() / rows;
    const auto mesh = tessera::init_device_mesh("cpu", {rows, columns}, {"y", "x"});
    const std::vector<std::int64_t> sizes = {4 * rows, 3 * columns};
    const at::Tensor values = at::arange(12 * world.size(), at::kDouble).sin().reshape(sizes);

    // The parts stay where they are, and are as large as before: only the halos travel.
    const auto mapped =
        tessera::local_map(step, {.out_placements = {{Shard(0), Shard(1)}},
                                  .in_placements = {std::nullopt, {Shard(0), Shard(1)}}});
    const at::Tensor start = values.clone().requires_grad_();
    const at::Tensor start_parts =
        tessera::distribute_tensor(values, mesh, {Shard(0), Shard(1)}).requires_grad_();
    at::Tensor plate = start;
    at::Tensor parts = start_parts;
    for (int i = 0; i < 5; ++i) {
      plate = plain_step(plate);
      parts = mapped(mesh, parts);
    }
    const at::Tensor result = tessera::full_tensor(parts);
    if (!at::allclose(result, plate)) throw tessera::Error("the plate is wrong");

    // How much each point at the start matters for the end: halos travel back, too.
    plate.pow(2).sum().backward();
    result.pow(2).sum().backward();
    if (!at::allclose(tessera::full_tensor(start_parts.grad()), start.grad())) {
      throw tessera::Error("the gradient is wrong");
    }
    if (world.rank() == 0) {
      std::cout << "a plate of " << tessera::layout_of(parts)
                << " is after 5 steps what it is on one "
                << "rank; so are its gradients\n";
    }
  });
}
