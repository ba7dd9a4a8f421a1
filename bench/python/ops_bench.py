"""ops_bench.py: what an operation costs on DTensors of tessera and of PyTorch, in Python, over the plain one.

One rank of torchrun; both use the same process group, and are measured in turns. Rank 0 prints JSON lines.
Operations that communicate are left out but for `redistribute`: the time is to be that of the libraries.
"""

import json
import time

import torch
import torch.distributed as dist
import torch.distributed.tensor as theirs
from torch.distributed.device_mesh import init_device_mesh as init_their_mesh
from torch.distributed.tensor.experimental import local_map as their_local_map

import tessera

ROUNDS = 21
REPEATS = 200


def microseconds(call, repeats):
    begin = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - begin) / repeats * 1e6


def median(values):
    return sorted(values)[len(values) // 2]


def compare(name, plain, ours, pytorch, repeats=REPEATS):
    calls = (plain, ours, pytorch)
    times = []
    for _ in range(ROUNDS):
        dist.barrier()
        times.append([microseconds(call, repeats) for call in calls])
    if dist.get_rank() == 0:
        # The least disturbed rounds: the machine may be busy with other things.
        best = [sorted(column)[len(column) // 4] for column in zip(*times[2:])]
        print(json.dumps(dict(name=name, ranks=dist.get_world_size(), plain=best[0], tessera=best[1],
                              pytorch=best[2])), flush=True)


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
        entries = ([tessera.Shard(0)], [tessera.Shard(0)])
        mine = tessera.experimental.local_map(torch.add, out_placements=[tessera.Shard(0)],
                                              in_placements=entries, device_mesh=ours)
        entries = ([theirs.Shard(0)], [theirs.Shard(0)])
        other = their_local_map(torch.add, out_placements=[theirs.Shard(0)], in_placements=entries,
                                device_mesh=pytorch)
        compare("local_map(x + y)", lambda: px + py, lambda: mine(ox, oy), lambda: other(tx, ty))
        compare("redistribute to the same", lambda: None,
                lambda: ox.redistribute(ours, [tessera.Shard(0)]),
                lambda: tx.redistribute(pytorch, [theirs.Shard(0)]))
        if size > 1:
            compare("redistribute S(0) -> R, 2 kB", lambda: None,
                    lambda: ox.redistribute(ours, [tessera.Replicate()]).to_local(),
                    lambda: tx.redistribute(pytorch, [theirs.Replicate()]).to_local().clone(), 10)
            compare("redistribute S(0) -> S(1), 2 kB", lambda: None,
                    lambda: ox.redistribute(ours, [tessera.Shard(1)]).to_local(),
                    lambda: tx.redistribute(pytorch, [theirs.Shard(1)]).to_local().clone(), 10)
    tessera.shutdown()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
