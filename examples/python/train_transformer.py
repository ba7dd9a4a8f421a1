"""A transformer trained on a mesh: layers are cut over `tp`, batches over `dp`.

    python train_transformer.py              # four ranks as threads
    torchrun --nproc-per-node 4 train_transformer.py
    mpirun -n 4 python train_transformer.py
"""

import copy
import os

import torch
from torch import nn
from torch.nn import functional

import tessera
from tessera import Replicate, Shard, distribute_tensor
from tessera.debug import CommDebugMode
from tessera.parallel import (ColwiseParallel, RowwiseParallel, clip_grad_norm_, data_parallel,
                              parallelize_module)

WORDS, WIDTH, HEADS, LENGTH, BATCH = 24, 32, 4, 12, 8


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def attention(self, x):
        def heads(t):
            return t.unflatten(-1, (HEADS, -1)).transpose(1, 2)

        mixed = functional.scaled_dot_product_attention(
            heads(self.query(x)), heads(self.key(x)), heads(self.value(x)), is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(-2))

    def forward(self, x):
        x = x + self.attention(self.first(x))
        return x + self.down(functional.gelu(self.up(self.second(x))))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.Sequential(Layer(), Layer())
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, tokens):
        return self.head(self.layers(self.words(tokens)))


# DTensors between the layers: sizes in `forward` are those of the whole.
COLUMNS, ROWS = ColwiseParallel(use_local_output=False), RowwiseParallel(use_local_output=False)
PLAN = {"layers.*.query": COLUMNS, "layers.*.key": COLUMNS, "layers.*.value": COLUMNS,
        "layers.*.out": ROWS, "layers.*.up": COLUMNS, "layers.*.down": ROWS, "head": COLUMNS}


def train(net, tokens, steps=5):
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        logits = net(tokens[:, :-1])
        loss = functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


def model():
    torch.manual_seed(1)
    return Transformer()


def main(rank, net):
    mesh = tessera.init_device_mesh("cpu", (tessera.get_world_size() // 2, 2),
                                    mesh_dim_names=("dp", "tp"))
    batch = (torch.arange(BATCH * LENGTH).reshape(BATCH, LENGTH) * 7) % WORDS
    expected = train(copy.deepcopy(net), batch)

    parallelize_module(net, mesh, PLAN, mesh_dim="tp")
    data_parallel(net, mesh)
    tokens = distribute_tensor(batch, mesh, [Shard(0), Replicate()], src_data_rank=None)
    with CommDebugMode() as traffic:
        losses = train(net, tokens)
    if rank == 0:
        print("step  one rank  the mesh")
        for step, (one, many) in enumerate(zip(expected, losses)):
            print(f"{step:4}  {one:8.4f}  {many:8.4f}")
            assert abs(one - many) < 1e-3
        print(traffic)


if __name__ == "__main__":
    if "RANK" in os.environ or "OMPI_COMM_WORLD_RANK" in os.environ:
        main(tessera.get_rank(), model())
    else:
        # Made here: torch has one random generator for all threads.
        nets = [model() for _ in range(4)]
        tessera.run_ranks(4, lambda rank: main(rank, nets[rank]))
