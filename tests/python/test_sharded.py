"""Sharded tensors and sharding plans: values, gradients and bytes against plain tensors, and the errors that
callers of `torch.distributed._shard` catch."""

import io
import pickle

import pytest
import torch
from torch import nn

import tessera
from tessera import DTensor, Replicate, distribute_tensor
from tessera import Shard as Along
from tessera.debug import CommDebugMode
from tessera.sharded import (BudgetPlanner, ChunkShardingSpec, EnumerableShardingSpec, Shard,
                             Sharder, ShardingPlan, ShardingPlanner, ShardMetadata, ShardedTensor,
                             TensorProperties, current_process_group, init_from_local_shards,
                             load_with_process_group, shard_module, shard_parameter, shard_tensor)
from tessera import sharded

WHOLE = torch.arange(35.0).reshape(7, 5)


def chunks(dim, ranks):
    return ChunkShardingSpec(dim, [f"rank:{rank}/cpu" for rank in ranks])


def boxes(ranks):
    """Rows 0 to 4 on the last rank, and the others in two pieces on the first."""
    return EnumerableShardingSpec([ShardMetadata([0, 0], [4, 5], f"rank:{ranks - 1}/cpu"),
                                   ShardMetadata([4, 0], [3, 2], "rank:0/cpu"),
                                   ShardMetadata([4, 2], [3, 3], "rank:0/cpu")])


def expect_shards(tensor, whole=WHOLE):
    own = [m for m in tensor.metadata().shards_metadata if m.placement.rank() == tessera.get_rank()]
    assert [shard.metadata for shard in tensor.local_shards()] == own
    for shard in tensor.local_shards():
        part = whole
        for dim, (begin, size) in enumerate(zip(shard.metadata.shard_offsets,
                                                shard.metadata.shard_sizes)):
            part = part.narrow(dim, begin, size)
        assert torch.equal(shard.tensor, part)


def raises(kinds, words, call):
    with pytest.raises(kinds[0], match=words) as caught:
        call()
    for kind in kinds:
        assert isinstance(caught.value, kind), kind


# Specs.


def test_specs_are_values():
    spec = ChunkShardingSpec(dim=0, placements=["rank:1/cpu", "rank:0"])
    assert repr(spec) == "ChunkShardingSpec(dim=0, placements=[rank:1/cpu, rank:0/cpu])"
    assert spec == chunks(0, [1, 0]) and hash(spec) == hash(chunks(0, [1, 0]))
    assert spec != chunks(0, [0, 1]) and spec != "rows"
    assert spec.dim == 0 and [place.rank() for place in spec.placements] == [1, 0]
    assert spec.placements[0].device() == torch.device("cpu")
    metadata = chunks(0, range(4)).build_metadata(torch.Size([5]), TensorProperties(dtype=torch.int64))
    assert [shard.shard_sizes for shard in metadata.shards_metadata] == [[2], [2], [1], [0]]
    assert metadata.shards_metadata[-1].shard_offsets == [5]
    assert metadata.size == torch.Size([5]) and metadata.tensor_properties.dtype == torch.int64
    assert metadata.tensor_properties.memory_format == torch.contiguous_format


def test_placements_of_torch_are_taken():
    from torch.distributed.remote_device import _remote_device

    assert ChunkShardingSpec(0, [_remote_device("rank:3/cpu")]) == chunks(0, [3])


def test_errors_of_specs():
    raises([NotImplementedError], "does not support named dimension", lambda: ChunkShardingSpec("N", []))
    raises([ValueError], "Sharding dim needs to be an integer, found: None",
           lambda: ChunkShardingSpec(None, ["rank:0/cpu"]))
    raises([ValueError], "Could not parse remote_device", lambda: ChunkShardingSpec(0, ["worker/cpu"]))
    raises([TypeError], "Invalid type for remote_device", lambda: ChunkShardingSpec(0, [1]))
    raises([ValueError], "Invalid sharding dim", lambda: chunks(2, [0]).build_metadata([4]))
    raises([ValueError], "Empty shard list", lambda: EnumerableShardingSpec([]))
    raises([ValueError], "same number of elements", lambda: ShardMetadata([0], [1, 2], "rank:0/cpu"))
    raises([ValueError], "shard_offsets should be >=0", lambda: ShardMetadata([-1], [1], "rank:0/cpu"))
    raises([ValueError], "overlap", lambda: EnumerableShardingSpec(
        [ShardMetadata([0], [3], "rank:0/cpu"), ShardMetadata([2], [3], "rank:1/cpu")]))
    raises([ValueError], "Found inconsistent ranks for shards", lambda: EnumerableShardingSpec(
        [ShardMetadata([0], [3], "rank:0/cpu"), ShardMetadata([0, 0], [3, 1], "rank:1/cpu")]))
    raises([ValueError], "Total volume of shards", lambda: EnumerableShardingSpec(
        [ShardMetadata([0], [3], "rank:0/cpu")]).build_metadata([4]))
    raises([ValueError], "Shard tensor size does not match", lambda: Shard(
        torch.zeros(3), ShardMetadata([0], [2], "rank:0/cpu")))
    raises([ValueError], "Local shard tensor device does not match", lambda: Shard(
        torch.zeros(2), ShardMetadata([0], [2], "rank:0/cuda:0")))


# Tensors.


def test_shards_reshards_and_gathers(on_ranks, ranks):
    def check(mesh):
        root = ranks - 1
        given = WHOLE.clone() if tessera.get_rank() == root else torch.zeros(7, 5)
        tensor = shard_tensor(given, chunks(0, range(ranks)), src_rank=root)
        expect_shards(tensor)
        assert tensor.shape == (7, 5) and tensor.size(1) == 5 and tensor.dtype == torch.float32
        for spec in (chunks(0, reversed(range(ranks))), boxes(ranks), chunks(1, [root, 0]),
                     chunks(1, [0] * 3), chunks(0, range(ranks))):
            assert tensor.reshard(spec) is tensor
            assert tensor.sharding_spec() == spec
            expect_shards(tensor)
        out = torch.zeros(5, 7).t() if tessera.get_rank() == root else None
        whole = tensor.gather(root, out)
        assert (whole is out) and (whole is None or torch.equal(whole, WHOLE))
        assert torch.equal(tensor.gather(), WHOLE) if tessera.get_rank() == 0 else \
            tensor.gather() is None

    on_ranks(check)


def test_only_what_is_needed_moves():
    def work(rank):
        tensor = shard_tensor(torch.arange(12.0).reshape(6, 2), chunks(0, [0, 1, 2]))
        with CommDebugMode() as traffic:
            tensor.reshard(chunks(0, [1, 2, 0]))
        expect_shards(tensor, torch.arange(12.0).reshape(6, 2))
        assert traffic.get_total_counts() == 1
        assert traffic.received_bytes == 2 * 2 * 4

    tessera.run_ranks(3, work)


def test_from_local_shards(on_ranks, ranks):
    def check(mesh):
        rank = tessera.get_rank()
        piece = torch.full((2, 3), float(rank))
        shard = Shard.from_tensor_and_offsets(piece, [2 * rank, 0], rank)
        tensor = init_from_local_shards([shard], 2 * ranks, 3)
        assert tensor.sharding_spec() == chunks(0, range(ranks))
        piece.fill_(7)
        assert torch.equal(tensor.local_tensor(), torch.full((2, 3), 7.0))
        same = init_from_local_shards([shard], torch.Size([2 * ranks, 3]))
        assert same.metadata() == tensor.metadata()

    on_ranks(check)


def test_factories(on_ranks, ranks):
    def check(mesh):
        for spec in (chunks(0, range(ranks)), boxes(ranks)):
            expect_shards(sharded.zeros(spec, 7, 5), torch.zeros(7, 5))
            expect_shards(sharded.ones(spec, [7, 5], dtype=torch.int32), torch.ones(7, 5, dtype=torch.int32))
            expect_shards(sharded.full(spec, (7, 5), 3), torch.full((7, 5), 3))
            assert sharded.empty(spec, 7, 5, requires_grad=True).requires_grad
            for make, like in ((sharded.rand, tessera.rand), (sharded.randn, tessera.randn)):
                tessera.manual_seed(3)
                expected = like(7, 5, device_mesh=mesh).full_tensor()
                tessera.manual_seed(3)
                expect_shards(make(spec, 7, 5), expected)

    on_ranks(check)


def test_dtensors_share_memory(on_ranks, ranks):
    def check(mesh):
        tensor = shard_tensor(WHOLE.clone(), chunks(0, reversed(range(ranks))))
        x = tensor.to_dtensor()
        assert isinstance(x, DTensor) and x.placements == (Along(0),)
        x.mul_(2)
        expect_shards(tensor, WHOLE * 2)
        back = ShardedTensor.from_dtensor(torch.relu(x))
        assert back.sharding_spec() == tensor.sharding_spec()
        expect_shards(back, WHOLE * 2)
        irregular = shard_tensor(WHOLE, boxes(ranks))
        y = irregular.to_dtensor(mesh, [Along(1)])
        assert torch.equal(y.full_tensor(), WHOLE)
        expect_shards(ShardedTensor.from_dtensor(y, boxes(ranks)))

    on_ranks(check)


def test_gradients_reach_the_shards(on_ranks, ranks):
    def check(mesh):
        tensor = shard_tensor(WHOLE.clone().requires_grad_(), chunks(0, range(ranks)))
        tensor.to_dtensor().square().sum().backward()
        local = tensor.local_tensor()
        assert torch.equal(local.grad, 2 * local.detach())

    on_ranks(check)


def test_errors_of_tensors():
    def work(rank):
        spec, last = chunks(0, range(2)), rank == 1
        # One rank is wrong, and both say so.
        raises([ValueError], "input tensor is not a contiguous Tensor",
               lambda: shard_tensor(torch.zeros(5, 7).t() if last else WHOLE, spec))
        raises([ValueError], "src_rank=0 on rank: 0 does not match with src_rank=1 on rank: 1",
               lambda: shard_tensor(WHOLE, spec, src_rank=rank))
        raises([ValueError], "sharding_spec=.* does not match with sharding_spec=",
               lambda: shard_tensor(WHOLE, chunks(rank, range(2))))
        raises([ValueError], "Global rank 2 does not exist in input process group",
               lambda: shard_tensor(WHOLE, chunks(0, [2])))
        raises([TypeError] if last else [ValueError], "Expecting ShardingSpec but got: str",
               lambda: shard_tensor(WHOLE, "rows" if last else spec))
        raises([TypeError] if last else [ValueError], "size has to be a sequence of ints",
               lambda: sharded.zeros(spec, "7" if last else 7))
        raises([ValueError], "Only torch.strided layout", lambda: sharded.ones(
            spec, 4, layout=torch.sparse_coo))
        tensor = shard_tensor(WHOLE, spec)
        raises([ValueError], "must NOT be specified on non-destination ranks",
               lambda: tensor.gather(0, torch.zeros(7, 5) if last else None))
        raises([ValueError], "`out` is float32", lambda: tensor.gather(
            0, None if last else torch.zeros(5, 7)))
        raises([TypeError] if last else [ValueError], "Expecting ShardingSpec",
               lambda: tensor.reshard(None if last else spec))
        twice = shard_tensor(WHOLE, chunks(0, [0, 1, 0, 1]))
        raises([NotImplementedError], "Only single local shard is supported", twice.local_tensor)
        raises([ValueError], "no DTensor is placed as", twice.to_dtensor)
        raises([ValueError], "give both", lambda: twice.to_dtensor(placements=[Replicate()]))
        piece = torch.zeros(2, dtype=torch.float64 if last else torch.float32)
        raises([ValueError],
               "ShardedTensor dtype property does not match from different ranks! Found "
               "dtype=float32 on rank:0, and dtype=float64 on rank:1",
               lambda: init_from_local_shards([Shard.from_tensor_and_offsets(piece, [2 * rank], rank)], 4))
        raises([ValueError], "have no local shards on all ranks", lambda: init_from_local_shards([], 4))
        expect_shards(tensor)

    tessera.run_ranks(2, work, timeout=30)


def test_groups_and_pickles():
    def work(rank):
        ranks = [3, 1] if rank % 2 else [0, 2]
        group = tessera.functional_collectives._resolve(ranks)
        assert current_process_group() == tessera.functional_collectives._resolve(None)
        whole = WHOLE * (10 if rank % 2 else 1)
        with load_with_process_group(ranks) as inside:
            assert inside == group and current_process_group() == group
            tensor = shard_tensor(whole, chunks(0, ranks), src_rank=1)
            assert tensor.process_group == group
            gathered = tensor.gather(dst=1)
            assert (gathered is not None) == (rank == ranks[1])
            assert gathered is None or torch.equal(gathered, whole)
            raises([RuntimeError], 'ProcessGroup already set by previous "load_with_process_group"',
                   lambda: load_with_process_group(ranks).__enter__())
            loaded = pickle.loads(pickle.dumps(tensor))
            assert loaded.metadata() == tensor.metadata()
            expect_shards(loaded, whole)
            file = io.BytesIO()
            torch.save({"weight": tensor}, file)
            file.seek(0)
            expect_shards(torch.load(file, weights_only=False)["weight"], whole)
        data = pickle.dumps(tensor)
        raises([RuntimeError], "of ranks .*; they must be the same", lambda: pickle.loads(data))

    tessera.run_ranks(4, work, timeout=30)


# Modules.


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(6, 7)
        self.fc2 = nn.Linear(7, 3)
        self.register_buffer("scale", torch.ones(3))

    def forward(self, x):
        return self.fc2(torch.relu(self.fc1(x))) * self.scale


def mlp():
    torch.manual_seed(2)
    return Mlp()


def is_untouched(module):
    return not any(isinstance(x, DTensor) for x in [*module.parameters(), *module.buffers()])


INPUT = torch.sin(torch.arange(24.0)).reshape(4, 6)


@pytest.mark.parametrize("before", [True, False], ids=["optimizer_before", "optimizer_after"])
def test_a_sharded_mlp_trains_as_the_plain_one(on_ranks, ranks, before):
    nets = [(mlp(), mlp()) for _ in range(ranks)]

    def check(mesh):
        plain, net = nets[tessera.get_rank()]
        if tessera.get_rank() != ranks - 1:  # The values come from the source rank.
            with torch.no_grad():
                net.fc1.weight.zero_()
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.05) if before else None
        held = net.fc1.weight
        order = list(reversed(range(ranks)))
        plan = ShardingPlan(plan={"fc1.*": chunks(0, order), "fc2.weight": chunks(1, order)})
        shard_module(net, plan, src_rank=ranks - 1)
        assert net.fc1.weight is held and isinstance(held, nn.Parameter)
        assert held.placements == (Along(0),) and held.device_mesh.mesh.tolist() == order
        assert net.fc2.weight.placements == (Along(1),)
        assert net.fc2.bias.placements == net.scale.placements == (Replicate(),)
        if optimizer is None:
            optimizer = torch.optim.AdamW(net.parameters(), lr=0.05)
        reference = torch.optim.AdamW(plain.parameters(), lr=0.05)
        x = distribute_tensor(INPUT, held.device_mesh, [Replicate()])
        for _ in range(5):
            for one, network, value in ((reference, plain, INPUT), (optimizer, net, x)):
                one.zero_grad()
                network(value).square().mean().backward()
            for a, b in zip(net.parameters(), plain.parameters()):
                torch.testing.assert_close(a.grad.full_tensor(), b.grad)
            reference.step()
            optimizer.step()
            for a, b in zip(net.parameters(), plain.parameters()):
                torch.testing.assert_close(a.detach().full_tensor(), b.detach())

    on_ranks(check)


def test_parameters_change_in_place(on_ranks, ranks):
    layers = [nn.Linear(6, 5) for _ in range(ranks)]
    values = layers[-1].weight.detach().clone()

    def check(mesh):
        layer = layers[tessera.get_rank()]
        held, bias = layer.weight, layer.bias
        held.grad = torch.full((5, 6), float(tessera.get_rank()))
        shard_parameter(layer, "weight", chunks(0, range(ranks)), src_rank=ranks - 1)
        assert layer.weight is held and held.requires_grad and held.is_leaf
        assert torch.equal(held.grad.full_tensor(), torch.full((5, 6), float(ranks - 1)))
        assert torch.equal(held.detach().full_tensor(), values)
        assert layer.bias is bias and not isinstance(bias, DTensor)

    on_ranks(check)


def test_errors_of_parameters():
    nets = [mlp() for _ in range(2)]

    def work(rank):
        net, spec, last = nets[rank], chunks(0, range(2)), rank == 1
        raises([AttributeError, ValueError], "Linear has no attribute `wieght`",
               lambda: shard_parameter(net.fc1, "wieght", spec))
        raises([ValueError], "Expected Mlp.fc1 to be a Tensor, but found Linear",
               lambda: shard_parameter(net, "fc1", spec))
        net.strided = nn.Parameter(torch.zeros(4, 6).t())
        raises([ValueError], "param: strided is not a contiguous Tensor",
               lambda: shard_parameter(net, "strided", spec))
        del net.strided
        raises([ValueError], "does not match with src_rank=1",
               lambda: shard_parameter(net.fc1, "weight", spec, src_rank=rank))
        raises([ValueError], "no DTensor is", lambda: shard_parameter(net.fc1, "weight", chunks(0, [0, 0])))
        # One rank is wrong, and the other hears of it.
        raises([AttributeError] if last else [ValueError], "has no attribute `nothing`",
               lambda: shard_parameter(net.fc1, "nothing" if last else "weight", spec))
        assert is_untouched(net)
        shard_parameter(net.fc1, "weight", spec)
        raises([ValueError], "is a DTensor already", lambda: shard_parameter(net.fc1, "weight", spec))

    tessera.run_ranks(2, work, timeout=30)


class Doubler(Sharder):
    """Replaces a Linear by twice its result."""

    def __init__(self):
        self.spec = chunks(0, range(2))

    def shard(self, module):
        shard_parameter(module, "weight", self.spec)
        shard_parameter(module, "bias", self.spec)
        return Doubled(module)


class Doubled(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return 2 * self.inner(x)


def test_the_module_of_a_sharder_takes_the_place_of_the_old_one():
    nets = [nn.Sequential(mlp(), nn.ModuleDict({"a": nn.Linear(3, 3)})) for _ in range(2)]
    plain = mlp()

    def work(rank):
        net = nets[rank]
        shard_module(net, ShardingPlan({"0.fc1": Doubler(), "1.*": Doubler()}))
        assert isinstance(net[0].fc1, Doubled) and isinstance(net[1]["a"], Doubled)
        x = distribute_tensor(INPUT, net[0].fc1.inner.weight.device_mesh, [Replicate()])
        expected = plain.fc2(torch.relu(2 * plain.fc1(INPUT)))
        torch.testing.assert_close(net[0](x).full_tensor(), expected)

    tessera.run_ranks(2, work)


def test_a_shared_module_is_sharded_once():
    def work(rank):
        layer = nn.Linear(3, 3)
        net = nn.Sequential(layer, layer)
        raises([ValueError], "are the same module", lambda: shard_module(
            net, ShardingPlan({"0": Doubler(), "1": Doubler()})))
        assert is_untouched(net)
        shard_module(net, ShardingPlan({"*": Doubler()}))
        assert net[0] is net[1] and isinstance(net[0], Doubled)
        tied = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
        tied[1].weight = tied[0].weight
        raises([RuntimeError], "1.weight, but it is the same tensor as 0.weight", lambda: shard_module(
            tied, ShardingPlan({"0": Doubler(), "1.weight": chunks(0, range(2))})))
        assert is_untouched(tied)

    tessera.run_ranks(2, work)


def test_outputs(on_ranks, ranks):
    nets = [mlp() for _ in range(ranks)]
    plain = mlp()

    def check(mesh):
        net = nets[tessera.get_rank()]
        spec = chunks(0, range(ranks))
        shard_module(net, ShardingPlan(plan={"fc1.weight": spec}, output_plan={"fc1": chunks(1, range(ranks)),
                                                                              "": spec},
                                       return_local_tensor=[""]))
        x = distribute_tensor(INPUT, net.fc1.weight.device_mesh, [Replicate()])
        assert net.fc1(x).placements == (Along(1),)
        local = net(x)
        assert not isinstance(local, DTensor)
        rows = -(-4 // ranks)
        expected = plain(INPUT)[rows * tessera.get_rank():][:rows]
        if rows == 1:
            expected = expected.squeeze(0)  # Chunks of one row lose the dim.
        torch.testing.assert_close(local, expected)
        local.sum().backward()
        assert net.fc1.weight.grad.placements == (Along(0),)

    on_ranks(check)


def test_patterns_and_names():
    def work(rank):
        net, rows, columns = mlp(), chunks(0, range(2)), chunks(1, range(2))
        shard_module(net, ShardingPlan({"*2.weight": rows, "fc*.weight": columns, "fc2.weight": columns}))
        assert net.fc1.weight.placements == net.fc2.weight.placements == (Along(1),)
        partly = mlp()
        shard_module(partly, ShardingPlan({"**.weight": rows}), replicate_rest=False)
        assert not isinstance(partly.fc1.bias, DTensor)
        # What was replicated may be sharded later.
        shard_module(net, ShardingPlan({"fc1.bias": rows}))
        assert net.fc1.bias.placements == (Along(0),)

    tessera.run_ranks(2, work)


def test_errors_of_plans():
    nets = [mlp() for _ in range(2)]

    def work(rank):
        net, spec, last = nets[rank], chunks(0, range(2)), rank == 1

        def refused(kinds, words, plan, **more):
            # Something that could be done comes first.
            raises(kinds, words, lambda: shard_module(
                net, ShardingPlan({"fc1.bias": spec, **plan}, **more)))
            assert is_untouched(net) and isinstance(net.fc1, nn.Linear)

        refused([TypeError], "Only `ShardingSpec` and `Sharder` are supported to shard 'fc1.weight'",
                {"fc1.weight": torch.ones(3)})
        refused([TypeError], "Only `ShardingSpec` is supported as output_plan for ''", {},
                output_plan={"": torch.ones(3)})
        refused([AttributeError], "has no attribute", {"fc3.weight": spec})
        refused([AttributeError], "has no attribute", {"fc1.biass": spec})
        refused([AttributeError], "there is no such parameter or buffer; near ones are",
                {"fc*.weigth": spec})
        refused([ValueError], r"shard_module: pattern 'fc\[12.weight' opens a set of characters",
                {"fc[12.weight": spec})
        refused([AttributeError], "has no attribute `fc3`", {"fc3": Doubler()})
        refused([AttributeError], "has no attribute `fc3`", {}, output_plan={"fc3": spec})
        refused([AttributeError], "has no attribute `fc3`", {}, return_local_tensor=["fc3"])
        refused([KeyError], "path must not be empty for custom sharder!", {"": Doubler()})
        refused([RuntimeError], "should not conflict with the submodule tree",
                {"fc2": Doubler(), "fc2.weight": spec})
        refused([RuntimeError], "Picky: not this one", {"fc2": Picky()})
        refused([ValueError], "both stand for 'fc2.weight'", {"fc*.weight": spec, "*2.weight": chunks(1, [0, 1])})
        refused([ValueError], "no DTensor is", {"fc2.weight": chunks(0, [0, 0])})
        refused([ValueError], "names rank 4, which does not exist", {}, output_plan={"fc1": chunks(0, [4])})
        refused([ValueError], "plan={.*} on rank: 0 does not match with plan=",
                {"fc2.weight": chunks(rank, range(2))})
        refused([RuntimeError], "Picky: not this one", {"fc2": Picky() if last else Doubler()})

    tessera.run_ranks(2, work, timeout=30)


class Picky(Doubler):
    def check(self, module):
        raise RuntimeError("Picky: not this one")


def test_planners():
    with pytest.raises(TypeError):
        ShardingPlanner()
    with pytest.raises(TypeError):
        Sharder()

    def work(rank):
        # float32: 2000 + 40 + 300 + 12 bytes.
        net = nn.Sequential(nn.Linear(50, 10), nn.Linear(25, 3))
        assert BudgetPlanner(2352).build_plan(net).plan == {}
        plan = BudgetPlanner(1351).build_plan(net)
        assert plan.plan == {"0.weight": chunks(0, range(2)), "1.weight": chunks(1, range(2))}
        raises([ValueError], "needs 1184 B", lambda: BudgetPlanner(1183).build_plan(net))
        raises([ValueError], "a budget of -1", lambda: BudgetPlanner(-1))
        raises([ValueError], "0 copies", lambda: BudgetPlanner(1, copies=0))
        shard_module(net, plan)
        held = sum(p.detach().to_local().nbytes for p in net.parameters())
        assert held <= 1351

    tessera.run_ranks(2, work)
