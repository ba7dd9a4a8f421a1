"""Modules, optimizers, plans: training equals that on plain tensors."""

import copy
import warnings

import pytest
import torch
from torch import nn

import tessera
from tessera import DTensor, Replicate, Shard, distribute_module, distribute_tensor
from tessera.debug import CommDebugMode
from tessera.parallel import (ColwiseParallel, PrepareModuleInput, PrepareModuleInputOutput,
                              PrepareModuleOutput, RowwiseParallel, SequenceParallel, fully_shard,
                              parallelize_module)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(12)
        self.up = nn.Linear(12, 24)
        self.down = nn.Linear(24, 12)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


def model():
    torch.manual_seed(5)
    return nn.Sequential(Block(), Block())


PLAN = {"*.up": ColwiseParallel(), "*.down": RowwiseParallel()}


def losses_of(net, x, optimizer_kind, steps=4):
    optimizer = optimizer_kind(net.parameters(), lr=0.05)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


INPUT = torch.linspace(-1, 1, 5 * 12).reshape(5, 12)


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW, torch.optim.Adagrad])
def test_replicated_module_trains_alike(on_ranks, kind):
    expected = losses_of(model(), INPUT, kind)
    nets = [model() for _ in range(4)]

    def check(mesh):
        net = distribute_module(nets[mesh.get_rank()], mesh)
        assert all(isinstance(p, DTensor) and isinstance(p, nn.Parameter) for p in net.parameters())
        x = distribute_tensor(INPUT, mesh, [Shard(0)])
        assert losses_of(net, x, kind) == pytest.approx(expected, rel=1e-4)

    on_ranks(check)


def test_tensor_parallel_plan_trains_alike(on_ranks):
    expected = losses_of(model(), INPUT, torch.optim.AdamW)
    nets = [model() for _ in range(4)]

    def check(mesh):
        net = parallelize_module(nets[mesh.get_rank()], mesh, PLAN)
        assert net[0].up.weight.placements == (Shard(0),)
        assert net[0].down.weight.placements == (Shard(1),)
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.05)
        losses = []
        for _ in range(4):
            optimizer.zero_grad()
            loss = net(INPUT).square().mean()
            loss.backward()
            # The norm is over plain and distributed parameters, so each kind has its own.
            plain = [p for p in net.parameters() if not isinstance(p, DTensor)]
            spread = [p for p in net.parameters() if isinstance(p, DTensor)]
            norms = [nn.utils.get_total_norm([p.grad for p in ps]) for ps in (plain, spread)]
            norm = torch.stack([whole(n) for n in norms]).norm()
            scale = torch.clamp(1.0 / (norm + 1e-6), max=1.0)
            for p in net.parameters():
                p.grad.mul_(scale)
            optimizer.step()
            losses.append(float(loss.detach()))
        assert losses == pytest.approx(expected, rel=1e-4)

    on_ranks(check)


def whole(value):
    return value.full_tensor() if isinstance(value, DTensor) else value


def test_state_dict_and_deepcopy(on_ranks):
    nets = [model() for _ in range(4)]
    plain = model().state_dict()

    def check(mesh):
        net = distribute_module(nets[mesh.get_rank()], mesh)
        state = net.state_dict()
        assert list(state) == list(plain)
        for name, value in state.items():
            assert isinstance(value, DTensor) and torch.equal(value.full_tensor(), plain[name])
        twin = copy.deepcopy(net)
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.zero_()
        assert torch.equal(twin[0].up.weight.full_tensor(), plain["0.up.weight"])
        net.load_state_dict(twin.state_dict())
        assert torch.equal(net[0].up.weight.full_tensor(), plain["0.up.weight"])

    on_ranks(check)


def test_saved_as_a_whole_and_loaded_elsewhere(tmp_path):
    nets = [model() for _ in range(4)]

    def save(rank):
        net = fully_shard(nets[rank], tessera.init_device_mesh("cpu", (3,)))
        state = {name: value.full_tensor() for name, value in net.state_dict().items()}
        if rank == 0:
            torch.save(state, tmp_path / "state")

    def load(rank):
        mesh = tessera.init_device_mesh("cpu", (2,))
        with torch.no_grad():
            for parameter in nets[rank].parameters():
                parameter.zero_()
        net = parallelize_module(nets[rank], mesh, PLAN)
        distribute_module(net, mesh)
        with tessera.experimental.implicit_replication():
            net.load_state_dict(torch.load(tmp_path / "state"))
        assert net[0].up.weight.placements == (Shard(0),)
        return {name: value.full_tensor() for name, value in net.state_dict().items()}

    plain = model().state_dict()
    tessera.run_ranks(3, save)
    nets = [model() for _ in range(2)]
    for state in tessera.run_ranks(2, load):
        assert all(torch.equal(state[name], value) for name, value in plain.items())


def test_distribute_module_hooks(on_ranks):
    nets = [nn.Linear(12, 8) for _ in range(4)]

    def check(mesh):
        seen = []

        def partition(name, module, device_mesh):
            seen.append(name)
            module.register_parameter("weight", nn.Parameter(
                distribute_tensor(module.weight.detach(), device_mesh, [Shard(0)])))

        net = distribute_module(
            nets[mesh.get_rank()], mesh, partition,
            lambda module, inputs, m: (distribute_tensor(inputs[0], m, [Replicate()]),),
            lambda module, outputs, m: outputs.full_tensor())
        assert seen == [""] and net.bias.placements == (Replicate(),)
        y = net(INPUT)
        assert not isinstance(y, DTensor)
        expected = INPUT @ net.weight.full_tensor().t() + net.bias.full_tensor()
        torch.testing.assert_close(y, expected)
        with pytest.raises(RuntimeError, match="only be called once"):
            distribute_module(net, mesh)
        with pytest.raises(ValueError, match="should take in 3 arguments"):
            distribute_module(nn.Linear(2, 2), mesh, input_fn=lambda a, b, c, d: a)

    on_ranks(check)


def test_embedding_both_ways(on_ranks):
    torch.manual_seed(2)
    weight = torch.randn(10, 6)
    tokens = torch.tensor([[0, 9, 3], [7, 7, 1]])

    def check(mesh):
        for style in (ColwiseParallel(output_layouts=Replicate()),
                      RowwiseParallel(input_layouts=Replicate())):
            layer = nn.Embedding(10, 6)
            layer.weight.data.copy_(weight)
            layer = parallelize_module(layer, mesh, style)
            torch.testing.assert_close(layer(tokens), weight[tokens])

    on_ranks(check)


def test_sequence_parallel_and_prepared_inputs(on_ranks):
    x = torch.linspace(-1, 1, 2 * 5 * 12).reshape(2, 5, 12)
    plain = nn.LayerNorm(12)

    def check(mesh):
        norm = parallelize_module(nn.LayerNorm(12), mesh, SequenceParallel())
        part = distribute_tensor(x, mesh, [Shard(1)]).to_local()
        y = norm(part)
        assert y.placements == (Shard(1),)
        torch.testing.assert_close(y.full_tensor(), plain(x))

        identity = parallelize_module(nn.Identity(), mesh, PrepareModuleInput(
            input_layouts=Shard(1), desired_input_layouts=Replicate()))
        assert identity(part).placements == (Replicate(),)
        identity = parallelize_module(nn.Identity(), mesh, PrepareModuleOutput(
            output_layouts=Shard(1), desired_output_layouts=Replicate()))
        torch.testing.assert_close(identity(part), x)
        identity = parallelize_module(nn.Identity(), mesh, PrepareModuleInputOutput(
            input_layouts=Shard(1), desired_input_layouts=Replicate(), output_layouts=Replicate(),
            desired_output_layouts=Shard(0), use_local_output=False))
        assert identity(part).placements == (Shard(0),)

    on_ranks(check)


def test_errors_of_plans():
    def check(rank):
        mesh = tessera.init_device_mesh("cpu", (2,))
        with pytest.raises(NotImplementedError, match="only support nn.Linear and nn.Embedding"):
            parallelize_module(nn.LayerNorm(3), mesh, ColwiseParallel())
        with pytest.raises(TypeError, match="parallelize_plan"):
            parallelize_module(nn.Linear(2, 2), mesh, ["x"])
        with pytest.raises(AssertionError, match="should have same length"):
            PrepareModuleInput(input_layouts=(Shard(0),), desired_input_layouts=(Shard(0), None))
        with pytest.raises(ValueError, match="should have same length"):
            parallelize_module(nn.Identity(), mesh, PrepareModuleInput(
                input_layouts=(Shard(0), None), desired_input_layouts=(Shard(0), None)))(torch.ones(2))

    tessera.run_ranks(2, check)

    def unmatched(rank):
        parallelize_module(model(), tessera.init_device_mesh("cpu", (1,)), {"nothing": ColwiseParallel()})

    with pytest.warns(UserWarning, match="could not be resolved"):
        tessera.run_ranks(1, unmatched)


def test_a_step_sums_once_forth_and_once_back_per_block(on_ranks):
    nets = [model() for _ in range(4)]
    styles = {"*.up": ColwiseParallel(use_local_output=False),
              "*.down": RowwiseParallel(use_local_output=False)}

    def check(mesh):
        net = distribute_module(parallelize_module(nets[mesh.get_rank()], mesh, styles), mesh)
        x = distribute_tensor(INPUT, mesh, [Replicate()])
        with CommDebugMode() as counted:
            net(x).square().mean().backward()
        # Two blocks: what `down` contributes, and the gradients of what `up` takes.
        assert counted.get_total_counts() == (4 if mesh.size() > 1 else 0)

    on_ranks(check)
