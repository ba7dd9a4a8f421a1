"""ops_bench.py: what an operation costs on DTensors of tessera and of PyTorch, in Python, over the plain one.

One rank of torchrun; both use the same process group, and are measured in turns. Rank 0 prints JSON lines.

Operations that communicate nothing are measured by the time that the thread computes: four ranks on two
cores take turns, and waiting for a core is no cost of the library. Moves are measured by the time that
passes.
"""

import json
import time

import torch
import torch.distributed as dist
import torch.distributed.tensor as theirs
from torch.distributed.device_mesh import init_device_mesh as init_their_mesh
from torch.distributed.tensor.experimental import local_map as their_local_map

import tessera

ROUNDS = 25
WARM_UP = 3


def microseconds(call, repeats, clock):
    begin = clock()
    for _ in range(repeats):
        call()
    return (clock() - begin) / repeats * 1e6


def compare(name, plain, ours, pytorch, repeats=200, clock=time.thread_time):
    times = []
    for _ in range(ROUNDS):
        dist.barrier()
        times.append([microseconds(call, repeats, clock) for call in (plain, ours, pytorch)])
    if dist.get_rank() == 0:
        middle = [sorted(column)[len(column) // 2] for column in zip(*times[WARM_UP:])]
        print(json.dumps(dict(name=name, ranks=dist.get_world_size(), plain=middle[0], tessera=middle[1],
                              pytorch=middle[2])), flush=True)


def mapped(local_map, tensor, mesh):
    rows = [tensor.Shard(0)]
    return local_map(torch.add, out_placements=rows, in_placements=(rows, rows), device_mesh=mesh)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    size = dist.get_world_size()
    ours, pytorch = tessera.init_device_mesh("cpu", (size,)), init_their_mesh("cpu", (size,))
    rows = 8 * size
    x, y, w = torch.randn(rows, 8), torch.randn(rows, 8), torch.randn(8, 8)
    # What a rank computes, so that only the libraries make a difference.
    px, py = x[:8].clone(), y[:8].clone()
    ox, oy = (tessera.distribute_tensor(t, ours, [tessera.Shard(0)]) for t in (x, y))
    ow = tessera.distribute_tensor(w, ours, [tessera.Replicate()])
    tx, ty = (theirs.distribute_tensor(t, pytorch, [theirs.Shard(0)]) for t in (x, y))
    tw = theirs.distribute_tensor(w, pytorch, [theirs.Replicate()])
    with torch.no_grad():
        compare("x + y", lambda: px + py, lambda: ox + oy, lambda: tx + ty)
        compare("x @ w", lambda: px @ w, lambda: ox @ ow, lambda: tx @ tw)
        mine = mapped(tessera.experimental.local_map, tessera, ours)
        other = mapped(their_local_map, theirs, pytorch)
        compare("local_map(torch.add)(x, y)", lambda: torch.add(px, py), lambda: mine(ox, oy),
                lambda: other(tx, ty))
        cut, their_cut = [tessera.Shard(0)], [theirs.Shard(0)]
        compare("redistribute, nothing to move", lambda: None, lambda: ox.redistribute(ours, cut),
                lambda: tx.redistribute(pytorch, their_cut))
        goals = (("Replicate()", [tessera.Replicate()], [theirs.Replicate()]),
                 ("Shard(1)", [tessera.Shard(1)], [theirs.Shard(1)]))
        for name, goal, their_goal in goals if size > 1 else ():
            compare(f"redistribute Shard(0) to {name}", lambda: None,
                    lambda: ox.redistribute(ours, goal).to_local(),
                    # The copy waits: their results may be on their way.
                    lambda: tx.redistribute(pytorch, their_goal).to_local().clone(), 10,
                    time.perf_counter)
    tessera.shutdown()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
