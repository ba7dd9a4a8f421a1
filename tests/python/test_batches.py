"""Batches that are spread over ranks, and losses and norms of what is spread."""

import pytest
import torch
from torch import nn
from torch.nn import functional

import tessera
from tessera import DTensor, Partial, Replicate, Shard, distribute_tensor
from tessera.debug import CommDebugMode
from tessera.parallel import (ColwiseParallel, RowwiseParallel, clip_grad_norm_, data_parallel,
                              fully_shard, loss_parallel, no_sync, parallelize_module)

# 7 rows do not divide evenly.
BATCH = torch.linspace(-1, 1, 7 * 12).reshape(7, 12)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(12), nn.Linear(12, 24), nn.Linear(24, 12)
        self.register_buffer("scale", torch.tensor([0.5]))

    def forward(self, x):
        return x + self.scale * self.down(torch.relu(self.up(self.norm(x))))


def model():
    torch.manual_seed(5)
    return nn.Sequential(Block(), Block())


def train(net, x, optimizer=None, clip=clip_grad_norm_):
    optimizer = optimizer or torch.optim.AdamW(net.parameters(), lr=0.05)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        clip(net.parameters(), 1.0)
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def expected_losses():
    return train(model(), BATCH, clip=nn.utils.clip_grad_norm_)


def test_data_parallel_trains_alike(on_ranks):
    expected = expected_losses()
    nets = [model() for _ in range(4)]

    def check(mesh):
        net = nets[mesh.get_rank()]
        objects = list(net.parameters())
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.05)  # Made before.
        assert data_parallel(net, mesh) is net
        assert all(new is old for new, old in zip(net.parameters(), objects))
        assert all(isinstance(t, DTensor) for t in (*net.parameters(), *net.buffers()))
        assert isinstance(net[0].up.weight, nn.Parameter)
        x = distribute_tensor(BATCH, mesh, [Shard(0)], src_data_rank=None)
        assert train(net, x, optimizer) == pytest.approx(expected, rel=1e-4)
        net.zero_grad()
        with CommDebugMode() as counted:
            net(x).square().mean().backward()
        if mesh.size() > 1:
            assert counted.get_comm_counts()["all_reduce_coalesced"] == 1
        assert all(p.grad.placements == (Replicate(),) for p in net.parameters())

    on_ranks(check)


def test_gradients_can_wait(on_ranks):
    nets = [model() for _ in range(4)]

    def check(mesh):
        net = data_parallel(nets[mesh.get_rank()], mesh)
        x = distribute_tensor(BATCH, mesh, [Shard(0)], src_data_rank=None)
        with no_sync(), CommDebugMode() as counted:
            net(x).square().mean().backward()
        assert counted.get_comm_counts()["all_reduce_coalesced"] == 0
        if mesh.size() > 1:
            assert net[0].up.weight.grad.placements == (Partial("sum"),)
        once = net[0].up.weight.grad.full_tensor().clone()
        net(x).square().mean().backward()
        assert net[0].up.weight.grad.placements == (Replicate(),)
        torch.testing.assert_close(net[0].up.weight.grad.full_tensor(), 2 * once)

    on_ranks(check)


def test_fully_sharded_trains_alike(on_ranks):
    expected = expected_losses()
    nets = [model() for _ in range(4)]

    def check(mesh):
        with mesh:
            net = fully_shard(nets[mesh.get_rank()], min_elements=13)
        assert net[0].up.weight.placements == (Shard(0),)
        assert net[0].down.bias.placements == (Replicate(),)
        x = distribute_tensor(BATCH, mesh, [Shard(0)], src_data_rank=None)
        assert train(net, x) == pytest.approx(expected, rel=1e-4)
        assert net[0].up.weight.grad.placements == (Shard(0),)
        state = net.state_dict()
        assert state["0.up.weight"].to_local().shape[0] <= -(-24 // mesh.size())

    on_ranks(check)


def test_layers_over_one_dim_and_batches_over_another():
    expected = expected_losses()
    styles = {"*.up": ColwiseParallel(use_local_output=False),
              "*.down": RowwiseParallel(use_local_output=False)}
    for spread, options in ((data_parallel, {}), (fully_shard, {"mesh_dim": "dp"})):
        # The modules are made one after the other: libtorch has one generator for all threads.
        made = [model() for _ in range(4)]

        def on_rank(rank):
            mesh = tessera.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
            net = parallelize_module(made[rank], mesh, styles, mesh_dim="tp")
            assert net[0].up.weight.placements == (Replicate(), Shard(0))
            spread(net, mesh, **options)
            if options:
                assert net[0].up.weight.placements == (Shard(1), Shard(0))
            x = distribute_tensor(BATCH, mesh, [Shard(0), Replicate()], src_data_rank=None)
            assert train(net, x) == pytest.approx(expected, rel=1e-4)

        tessera.run_ranks(4, on_rank)


def test_errors_of_two_dims():
    def check(rank):
        mesh = tessera.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        with pytest.raises(ValueError, match="pass the one along which to work as mesh_dim"):
            parallelize_module(nn.Linear(4, 4), mesh, ColwiseParallel())
        with pytest.raises(KeyError, match="'pp' does not exist"):
            parallelize_module(nn.Linear(4, 4), mesh, ColwiseParallel(), mesh_dim="pp")
        net = parallelize_module(nn.Linear(4, 4), mesh, ColwiseParallel(), mesh_dim="tp")
        with pytest.raises(ValueError, match="a plain tensor came.*use_local_output=False"):
            net(torch.ones(2, 4))
        with pytest.raises(ValueError, match="no mesh_dim given"):
            fully_shard(nn.Linear(4, 4), mesh)
        part = parallelize_module(nn.Linear(4, 4), mesh["tp"], ColwiseParallel())
        with pytest.raises(ValueError, match="'weight' is on.*must be on one mesh"):
            data_parallel(part, mesh)

    tessera.run_ranks(4, check)


def test_norms_of_plain_and_spread_gradients(on_ranks):
    torch.manual_seed(2)
    values = [torch.randn(5, 3), torch.randn(4), torch.randn(6)]
    plain = [nn.Parameter(torch.zeros_like(v)) for v in values]
    for parameter, value in zip(plain, values):
        parameter.grad = value.clone()
    expected = nn.utils.clip_grad_norm_(plain, 0.5)

    def check(mesh):
        placements = ([Shard(0)], [Replicate()], None)
        spread = [nn.Parameter(torch.zeros_like(v)) if p is None else
                  distribute_tensor(nn.Parameter(torch.zeros_like(v)), mesh, p)
                  for v, p in zip(values, placements)]
        for parameter, value, p in zip(spread, values, placements):
            parameter.grad = value.clone() if p is None else distribute_tensor(value, mesh, p)
        norm = clip_grad_norm_(spread, 0.5)
        torch.testing.assert_close(norm, expected, check_dtype=False)
        for parameter, other in zip(spread, plain):
            grad = parameter.grad
            grad = grad.full_tensor() if isinstance(grad, DTensor) else grad
            torch.testing.assert_close(grad, other.grad)
        spread[2].grad.fill_(float("inf"))
        with pytest.raises(RuntimeError, match="total norm of order 2.*is non-finite"):
            clip_grad_norm_(spread, 0.5, error_if_nonfinite=True)

    on_ranks(check)


@pytest.mark.parametrize("options", [{}, {"reduction": "sum"}, {"label_smoothing": 0.1},
                                     {"ignore_index": 3}, {"reduction": "none"}], ids=str)
def test_loss_parallel(on_ranks, options):
    logits = torch.linspace(-2, 2, 6 * 10).reshape(6, 10).cos()
    target = torch.tensor([0, 3, 9, 5, 5, 2])
    plain = logits.clone().requires_grad_()
    expected = functional.cross_entropy(plain, target, **options)
    expected.sum().backward()

    def check(mesh):
        x = distribute_tensor(logits.clone().requires_grad_(), mesh, [Shard(1)])
        with loss_parallel(), CommDebugMode() as counted:
            loss = functional.cross_entropy(x, target, **options)
            loss.sum().backward()
        torch.testing.assert_close(loss.full_tensor(), expected.detach())
        torch.testing.assert_close(x.grad.full_tensor(), plain.grad)
        assert counted.received_bytes < logits.nbytes
        rows = distribute_tensor(logits, mesh, [Shard(0)])
        if mesh.size() > 1:
            with loss_parallel(), pytest.raises(RuntimeError, match="class"):
                functional.cross_entropy(rows, target, **options)
        functional.cross_entropy(rows, target, **options)

    on_ranks(check)
