"""What dtensor_bench measures, in PyTorch's DTensor: `ops` alone, `move` under torchrun."""

import json
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.experimental import local_map

ROUNDS = 15


def median(values):
    return sorted(values)[len(values) // 2]


def compare(name, repeats, plain, distributed):
    def microseconds(call):
        # As in dtensor_bench: what this thread computes, which other programs do not add to.
        begin = time.thread_time()
        for _ in range(repeats):
            call()
        return (time.thread_time() - begin) / repeats * 1e6

    pairs = [(microseconds(plain), microseconds(distributed)) for _ in range(ROUNDS + 2)][2:]
    print(json.dumps({
        "name": name,
        "plain_us": median([a for a, _ in pairs]),
        "dtensor_us": median([b for _, b in pairs]),
    }), flush=True)


def small_ops(mesh):
    x, y = torch.randn(8, 8), torch.randn(8, 8)
    dx, dy = (distribute_tensor(t, mesh, [Shard(0)]) for t in (x, y))
    whole = distribute_tensor(y, mesh, [Replicate()])
    with torch.no_grad():
        compare("add", 300, lambda: x + y, lambda: dx + dy)
        compare("mm", 300, lambda: x @ y, lambda: dx @ whole)
        compare("redistribute nothing", 300, lambda: None,
                lambda: dx.redistribute(mesh, [Shard(0)]))
        mapped = local_map(lambda a, b: a + b, out_placements=[Shard(0)],
                           in_placements=([Shard(0)], [Shard(0)]), device_mesh=mesh)
        compare("local_map of add", 300, lambda: x + y, lambda: mapped(dx, dy))


def optimizer(mesh):
    def parameters(make):
        result = []
        for _ in range(100):
            parameter = torch.nn.Parameter(make(torch.randn(8, 8)))
            parameter.grad = make(torch.randn(8, 8))
            result.append(parameter)
        return torch.optim.AdamW(result, lr=1e-3, foreach=False)

    plain = parameters(lambda t: t)
    distributed = parameters(lambda t: distribute_tensor(t, mesh, [Shard(0)]))
    compare("AdamW step of 100 parameters", 3, plain.step, distributed.step)


def move(mesh):
    x = distribute_tensor(torch.randn(4096, 4096), mesh, [Shard(0)])
    times = []
    for _ in range(7):
        dist.barrier()
        begin = time.perf_counter()
        x.redistribute(mesh, [Shard(1)]).to_local()
        dist.barrier()
        times.append((time.perf_counter() - begin) * 1e3)
    if dist.get_rank() == 0:
        print(json.dumps({"name": "move", "engine": "gloo", "ms": median(times[2:]),
                          "least_ms": min(times[2:])}), flush=True)


def main():
    torch.set_num_threads(1)
    if sys.argv[1] == "ops":
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    mesh = init_device_mesh("cpu", (dist.get_world_size() if dist.is_initialized() else
                                    int(__import__("os").environ["WORLD_SIZE"]),))
    if sys.argv[1] == "ops":
        small_ops(mesh)
        optimizer(mesh)
    else:
        move(mesh)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
