"""A tensor on a mesh: torch's functions, modules and optimizers work on it as on any other."""

import torch

import tessera
from tessera import DTensor, Replicate, Shard


def main(rank):
    mesh = tessera.init_device_mesh("cpu", (tessera.get_world_size(),), mesh_dim_names=("tp",))
    x = tessera.randn(8, 16, device_mesh=mesh, placements=[Replicate()])
    w = tessera.randn(16, 32, device_mesh=mesh, placements=[Shard(1)], requires_grad=True)

    with tessera.debug.CommDebugMode() as traffic:
        loss = torch.relu(x @ w).sum()  # Each rank works on its own columns.
        loss.backward()
        rows = w.grad.redistribute(placements=[Shard(0)])  # The fewest bytes that do it.

    assert isinstance(w.grad, DTensor) and w.grad.placements == (Shard(1),)
    assert torch.equal(rows.full_tensor(), w.grad.full_tensor())
    if rank == 0:
        print(rows)
        print(traffic)


if __name__ == "__main__":
    tessera.run_ranks(4, main)
