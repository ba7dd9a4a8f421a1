"""training_bench.py: a training step of a small transformer, tensor parallel, with AdamW.

One rank of torchrun; tessera and PyTorch's DTensor use the same process group and take turns, a round of
steps each: a program trains with one library, and finds its own code and data in the caches. Rank 0 prints
one JSON line, after making sure that both have the same losses.
"""

import json
import statistics
import time

import torch
import torch.distributed as dist
import torch.distributed.tensor as theirs
import torch.distributed.tensor.parallel as their_parallel
from torch import nn
from torch.distributed.device_mesh import init_device_mesh as init_their_mesh
from torch.nn import functional

import tessera
import tessera.parallel

LAYERS, WIDTH, HEADS, BATCH, LENGTH = 2, 64, 4, 4, 16
ROUNDS, WARM_UP, STEPS = 6, 2, 10


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x):
        def heads(t):
            return t.unflatten(-1, (-1, WIDTH // HEADS)).transpose(1, 2)

        # Written out: PyTorch's DTensor has no rule for fused attention on CPUs.
        scores = heads(self.query(x)) @ heads(self.key(x)).transpose(-2, -1) / (WIDTH // HEADS) ** 0.5
        mixed = torch.softmax(scores, -1) @ heads(self.value(x))
        return self.out(mixed.transpose(1, 2).flatten(-2))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = Attention()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        x = x + self.attention(self.first(x))
        return x + self.down(functional.gelu(self.up(self.second(x))))


def make(tensor, parallel, mesh):
    """The model with that library: every parameter is a DTensor, and so are all activations."""
    torch.manual_seed(1)
    net = nn.Sequential(*(Layer() for _ in range(LAYERS)))
    column = dict(use_local_output=False)
    plan = {}
    for name in ("attention.query", "attention.key", "attention.value", "up"):
        plan[f"*.{name}"] = parallel.ColwiseParallel(**column)
    for name in ("attention.out", "down"):
        plan[f"*.{name}"] = parallel.RowwiseParallel(**column)
    parallel.parallelize_module(net, mesh, plan)
    for layer in net:
        tensor.distribute_module(layer.first, mesh)
        tensor.distribute_module(layer.second, mesh)
    return net, torch.optim.AdamW(net.parameters(), lr=1e-3, foreach=True)


def step(net, optimizer, x):
    optimizer.zero_grad()
    loss = net(x).square().mean()
    loss.backward()
    optimizer.step()
    return loss


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    size = dist.get_world_size()
    x = torch.linspace(-1, 1, BATCH * LENGTH * WIDTH).reshape(BATCH, LENGTH, WIDTH)
    sides = []
    for tensor, parallel, mesh in (
            (tessera, tessera.parallel, tessera.init_device_mesh("cpu", (size,))),
            (theirs, their_parallel, init_their_mesh("cpu", (size,)))):
        net, optimizer = make(tensor, parallel, mesh)
        sides.append((net, optimizer,
                      tensor.distribute_tensor(x, mesh, [tensor.Replicate()])))
    times, losses = ([], []), ([], [])
    for _ in range(ROUNDS):
        for i, (net, optimizer, value) in enumerate(sides):
            for number in range(WARM_UP + STEPS):
                dist.barrier()
                begin = time.perf_counter()
                loss = step(net, optimizer, value)
                if number >= WARM_UP:
                    times[i].append((time.perf_counter() - begin) * 1e3)
                losses[i].append(float(loss.detach().full_tensor()))
    torch.testing.assert_close(torch.tensor(losses[0]), torch.tensor(losses[1]), rtol=1e-3, atol=1e-5)
    if dist.get_rank() == 0:
        ours, pytorch = (statistics.median(column) for column in times)
        print(json.dumps(dict(name=f"training step, {LAYERS} layers, AdamW", ranks=size, tessera=ours,
                              pytorch=pytorch)), flush=True)
    tessera.shutdown()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
