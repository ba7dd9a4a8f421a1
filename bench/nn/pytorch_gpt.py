"""The GPT of examples/gpt in PyTorch, on a mesh of dp=2, tp=2 under torchrun; prints JSON.

Layers are spread by parallelize_module; gradients are summed over dp in one bucket, as
DistributedDataParallel does.
"""

import json
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel, RowwiseParallel, parallelize_module)
from torch.utils._python_dispatch import TorchDispatchMode

VOCABULARY, CONTEXT, WIDTH, HEADS, LAYERS, DROPOUT, ROWS = 44, 64, 128, 4, 2, 0.1, 8
WARMUP, STEPS = 5, 30


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value, self.output = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, x):
        # Layers that are cut give a part of the heads.
        def by_head(y):
            return y.view(y.size(0), y.size(1), -1, WIDTH // HEADS).transpose(1, 2)

        seen = F.scaled_dot_product_attention(
            by_head(self.query(x)), by_head(self.key(x)), by_head(self.value(x)), is_causal=True)
        return self.dropout(self.output(seen.transpose(1, 2).flatten(2)))


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, x):
        return self.dropout(self.down(F.gelu(self.up(x))))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention_norm, self.attention = nn.LayerNorm(WIDTH), Attention()
        self.mlp_norm, self.mlp = nn.LayerNorm(WIDTH), Mlp()

    def forward(self, x):
        y = x + self.attention(self.attention_norm(x))
        return y + self.mlp(self.mlp_norm(y))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.register_buffer("places", torch.arange(CONTEXT))
        self.dropout = nn.Dropout(DROPOUT)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, tokens):
        x = self.dropout(self.tokens(tokens) + self.positions(self.places[: tokens.size(1)]))
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.tokens.weight)


def spread(model, mesh):
    for block in model.blocks:
        parallelize_module(block, mesh, {
            **{f"attention.{name}": ColwiseParallel() for name in ("query", "key", "value")},
            "attention.output": RowwiseParallel(),
            "mlp.up": ColwiseParallel(),
            "mlp.down": RowwiseParallel(),
        })


def sum_gradients(model, group):
    """One all_reduce of all gradients over dp."""
    locals_ = [p.grad.to_local() if isinstance(p.grad, DTensor) else p.grad
               for p in model.parameters()]
    flat = torch.cat([g.reshape(-1) for g in locals_])
    dist.all_reduce(flat, group=group)
    flat /= dist.get_world_size(group)
    at = 0
    for g in locals_:
        g.copy_(flat[at:at + g.numel()].view_as(g))
        at += g.numel()


class Traffic(TorchDispatchMode):
    """Counts collectives and what a rank receives in them, as Tessera's CommDebugMode does."""

    def __init__(self):
        super().__init__()
        self.collectives = 0
        self.received = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        n = 2  # Both mesh dims have two ranks.
        share = {"all_reduce": 2 * (n - 1) / n, "allreduce_": 2 * (n - 1) / n,
                 "all_gather_into_tensor": n - 1, "reduce_scatter_tensor": (n - 1) / n}
        space, _, name = str(func.overloadpacket).partition(".")
        if "c10d" in space and name in share:
            tensors = [t for t in torch.utils._pytree.tree_leaves(args) if isinstance(t, torch.Tensor)]
            self.collectives += 1
            self.received += int(share[name] * tensors[0].numel() * tensors[0].element_size())
        return result


def main():
    torch.set_num_threads(1)
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    torch.manual_seed(1)
    model = Gpt()
    spread(model, mesh["tp"])
    group = mesh.get_group("dp")
    # The fastest of PyTorch's implementations, which takes DTensors and plain tensors apart.
    groups = [{"params": [p for p in model.parameters() if isinstance(p, DTensor) == is_spread]}
              for is_spread in (True, False)]
    optimizer = torch.optim.AdamW(groups, lr=3e-3, fused=True)
    rows = ROWS // 2
    generator = torch.Generator().manual_seed(7 + mesh.get_local_rank("dp"))
    data = torch.randint(VOCABULARY, (rows, CONTEXT + 1), generator=generator)
    tokens, targets = data[:, :-1].contiguous(), data[:, 1:].contiguous()

    def step():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())
        loss.backward()
        sum_gradients(model, group)
        optimizer.step()
        return loss.item()

    times = []
    traffic = Traffic()
    for at in range(WARMUP + STEPS):
        if at == WARMUP - 1:
            with traffic:
                step()
            continue
        dist.barrier()
        begin = time.perf_counter()
        step()
        if at >= WARMUP:
            times.append((time.perf_counter() - begin) * 1e3)
    if dist.get_rank() == 0:
        print(json.dumps({"name": "dp+tp on dp=2,tp=2", "engine": "gloo",
                          "ms": sorted(times)[len(times) // 2],
                          "received_bytes": traffic.received,
                          "collectives": traffic.collectives}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
