"""The package on ranks that are processes: run by torchrun, mpirun or tessera_run.

process_ranks.py ENGINE: ENGINE is what `tessera` must have chosen by itself.
"""

import sys

import torch
import torch.distributed as dist
from torch import nn

import tessera
from tessera import DTensor, Replicate, Shard, distribute_tensor
from tessera.debug import CommDebugMode
from tessera.experimental import local_map
from tessera.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from tessera.sharded import ChunkShardingSpec, ShardingPlan, shard_module, shard_tensor

torch.set_num_threads(1)


def check_moves(mesh):
    whole = torch.arange(35.0).reshape(7, 5)
    x = distribute_tensor(whole, mesh, [Shard(0)])
    for placement in (Shard(1), Replicate(), Shard(0)):
        x = x.redistribute(placements=[placement])
        assert torch.equal(x.full_tensor(), whole)
    torch.testing.assert_close((x @ x.t()).full_tensor(), whole @ whole.t())


def check_sub_meshes(size):
    """Groups of some ranks are made when they are needed."""
    if size % 2:
        return
    mesh = tessera.init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("dp", "tp"))
    whole = torch.arange(24.0).reshape(6, 4)
    x = distribute_tensor(whole, mesh, [Shard(0), Shard(1)])
    y = x.redistribute(placements=[Shard(0), Replicate()])
    assert torch.equal(y.full_tensor(), whole)
    total = tessera.functional_collectives.all_reduce(torch.ones(2), "sum", mesh["tp"])
    assert float(total[0]) == size // 2
    upside_down = tessera.DeviceMesh("cpu", list(reversed(range(size))))
    z = distribute_tensor(whole, upside_down, [Shard(0)])
    assert torch.equal(z.full_tensor(), whole)


def check_local_map(mesh):
    w, x = torch.ones(4, 6), torch.ones(6, 3)

    def multiply(a, b):
        return tessera.functional_collectives.all_reduce(a @ b, "sum", mesh).wait()

    mapped = local_map(multiply, out_placements=[Replicate()], in_placements=([Shard(1)], [Shard(0)]))
    with CommDebugMode() as counted:
        y = mapped(distribute_tensor(w, mesh, [Shard(1)], src_data_rank=None),
                   distribute_tensor(x, mesh, [Shard(0)], src_data_rank=None))
    assert counted.get_total_counts() == 1
    assert torch.equal(y.to_local(), w @ x)


def losses_of(net, x):
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.05)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def check_training(mesh):
    def model():
        torch.manual_seed(3)
        return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))

    x = torch.linspace(-1, 1, 40).reshape(5, 8)
    expected = losses_of(model(), x)
    net = parallelize_module(model(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    assert isinstance(net[0].weight, DTensor)
    torch.testing.assert_close(torch.tensor(losses_of(net, x)), torch.tensor(expected))


def check_sharded(size):
    """Shards, another cut, a plan; and a mistake of one rank, which all hear of."""
    rank = tessera.get_rank()
    whole = torch.arange(35.0).reshape(7, 5)
    rows = ChunkShardingSpec(0, [f"rank:{rank}/cpu" for rank in range(size)])
    columns = ChunkShardingSpec(1, [f"rank:{rank}/cpu" for rank in reversed(range(size))])
    tensor = shard_tensor(whole if rank == size - 1 else whole * 0, rows, src_rank=size - 1)
    gathered = tensor.reshard(columns).gather()
    assert torch.equal(gathered, whole) if rank == 0 else gathered is None
    torch.manual_seed(rank)
    net = nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 2))
    if size > 1:
        for plan, words in (({"3.weight" if rank == 0 else "0.weight": rows}, "has no attribute `3`"),
                            ({"0.weight": rows if rank == 0 else columns}, "does not match with plan=")):
            try:
                shard_module(net, ShardingPlan(plan))
            except tessera.InvalidArgument as error:
                assert words in str(error), error
            else:
                raise SystemExit(f"{words}: nothing was raised")
    shard_module(net, ShardingPlan({"0.*": rows, "2.weight": ChunkShardingSpec(1, rows.placements)},
                                   return_local_tensor=["2"]))
    x = distribute_tensor(whole, net[0].weight.device_mesh, [Replicate()])
    y = net(x)
    plain = nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 2))
    with torch.no_grad():
        for mine, theirs in zip(plain.parameters(), net.parameters()):
            mine.copy_(theirs.full_tensor())
    torch.testing.assert_close(y, plain(whole))


def check_collectives_of_torch(mesh):
    """They would work on a copy that nobody sees again, so they refuse DTensors."""
    for placement in (Shard(0), Replicate()):
        x = distribute_tensor(torch.arange(4.0), mesh, [placement])
        for call in (lambda: dist.all_reduce(x), lambda: dist.broadcast(x, 0)):
            try:
                call()
            except RuntimeError as error:
                assert "for plain tensors; pass x.to_local()" in str(error), error
            else:
                raise AssertionError("a DTensor was taken")


def main():
    engine = sys.argv[1]
    if "late" in sys.argv:
        dist.init_process_group("gloo")
    tessera.init()
    mesh = tessera.init_device_mesh("cpu", (tessera.get_world_size(),), mesh_dim_names=("tp",))
    group = mesh.get_group()
    assert group.engine == engine, f"{group.engine} instead of {engine}"
    check_moves(mesh)
    if dist.is_initialized():
        check_collectives_of_torch(mesh)
    check_sub_meshes(mesh.size())
    check_local_map(mesh)
    check_training(mesh)
    check_sharded(mesh.size())
    if "late" in sys.argv:
        assert dist.is_initialized() and dist.get_rank() == tessera.get_rank()
    print(f"rank {tessera.get_rank()} is done", flush=True)


if __name__ == "__main__":
    main()
