// Who owns what of a tensor, and what moves when its layout changes. Needs no libtorch.
#include <iostream>

#include <tessera/layout/picture.h>
#include <tessera/plan/redistribute_plan.h>

using tessera::Layout;
using tessera::MeshShape;
using tessera::Shard;

int main() {
  const MeshShape mesh({2, 2}, {"dp", "tp"});
  const Layout before(mesh, {Shard(0), Shard(1)}, {1000, 1000});
  const Layout after(mesh, {Shard(1), Shard(0)}, {1000, 1000});
  std::cout << tessera::beside(draw(before), "  ->  ", draw(after)) << '\n';

  const auto plan = tessera::plan_redistribute(before, after);  // Every rank finds the same one.
  std::cout << plan.explain();

  const auto own = plan.for_rank(1);  // What rank 1 has to do, found without asking the others.
  for (const auto& message : own->steps[0].sends) {
    std::cout << "rank 1 sends " << message.numel << " elements to rank " << message.peer << '\n';
  }
}
