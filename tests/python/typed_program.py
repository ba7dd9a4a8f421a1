"""A program of a user, with types."""

from typing import List, Tuple

import torch
from torch import nn

import tessera
from tessera import DTensor, DeviceMesh, Partial, Placement, Replicate, Shard, distribute_tensor
from tessera.debug import CommDebugMode
from tessera.experimental import local_map
from tessera.parallel import ColwiseParallel, RowwiseParallel, fully_shard, loss_parallel, parallelize_module


def rows(mesh: DeviceMesh, whole: torch.Tensor) -> DTensor:
    x = distribute_tensor(whole, mesh, [Shard(0)])
    wanted: List[Placement] = [Replicate(), Partial("max")]
    y = x.redistribute(placements=wanted[:1], async_op=True)
    return y


def main(rank: int) -> Tuple[int, ...]:
    mesh = tessera.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    net = parallelize_module(nn.Linear(4, 4), mesh["tp"], {"": ColwiseParallel(output_layouts=Replicate())})
    x: torch.Tensor = rows(mesh["tp"], torch.ones(4, 4))
    if isinstance(x, DTensor):
        print(x.placements[0].is_shard(0), x.device_mesh.size(), x.to_local().shape)
    with CommDebugMode() as traffic, loss_parallel():
        net(x)
    print(traffic.get_total_counts(), mesh.get_local_rank("tp"), RowwiseParallel())
    double = local_map(lambda v: v * 2, out_placements=[Shard(0)])
    double(x)
    fully_shard(net, mesh, mesh_dim="dp")
    return mesh.get_coordinate() or ()


if __name__ == "__main__":
    results: List[Tuple[int, ...]] = tessera.run_ranks(4, main)
