"""Errors have the types and the words that callers of PyTorch look for."""

import copy
import pickle

import pytest
import torch

import tessera
from tessera import DTensor, DeviceMesh, Partial, Replicate, Shard, distribute_tensor, init_device_mesh
from tessera.experimental import local_map


def on_two_ranks(fn):
    def run():
        tessera.run_ranks(2, lambda rank: fn(init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))))

    run.__name__ = fn.__name__
    return run


def check(kinds, words, call):
    """`call` raises an exception of all these kinds with these words."""
    with pytest.raises(kinds[0], match=words) as caught:
        call()
    for kind in kinds:
        assert isinstance(caught.value, kind), kind


@on_two_ranks
def test_meshes(mesh):
    check([RuntimeError], "Each mesh_dim_name must be unique",
          lambda: init_device_mesh("cpu", (1, 2), mesh_dim_names=("a", "a")))
    check([RuntimeError], "mesh_shape and mesh_dim_names should have same length",
          lambda: init_device_mesh("cpu", (2,), mesh_dim_names=("a", "b")))
    check([RuntimeError], "Device type with index is not supported",
          lambda: init_device_mesh("cuda:0", (2,)))
    check([RuntimeError], "Mesh should not be bigger than default world size",
          lambda: init_device_mesh("cpu", (3,)))
    check([AssertionError], r"rank_coords.size\(0\) must be 0 or 1", lambda: DeviceMesh("cpu", [0, 0]))
    check([RuntimeError], "No device mesh is currently active!", lambda: tessera.zeros(2))
    flat = init_device_mesh("cpu", (2,))
    check([RuntimeError], "Cannot slice a DeviceMesh without", lambda: flat["tp"])
    check([KeyError], "Invalid mesh_dim_names", lambda: mesh["dp"])
    check([KeyError], "does not exist", lambda: mesh.get_group("dp"))
    wide = init_device_mesh("cpu", (2, 1), mesh_dim_names=("dp", "tp"))
    check([KeyError], "ascending order", lambda: wide["tp", "dp"])
    check([RuntimeError], "`mesh_dim` needs to be specified when device_mesh.ndim > 1",
          lambda: wide.get_local_rank())


@on_two_ranks
def test_distribute(mesh):
    x = torch.ones(4, 4)
    check([ValueError, RuntimeError], "same length as `device_mesh.ndim`",
          lambda: distribute_tensor(x, mesh, [Shard(0), Shard(1)]))
    check([RuntimeError], "leaf tensors",
          lambda: distribute_tensor(x.clone().requires_grad_() * 2, mesh, [Shard(0)]))
    check([IndexError, AssertionError], "greater than tensor ndim",
          lambda: distribute_tensor(x, mesh, [Shard(2)]))
    check([AssertionError], "must be normalized", lambda: distribute_tensor(x, mesh, [Shard(-3)]))
    placed = distribute_tensor(x, mesh, [Shard(0)])
    check([ValueError], "Cannot distribute a DTensor", lambda: distribute_tensor(placed, mesh, [Shard(1)]))
    check([TypeError], "a placement is Shard", lambda: distribute_tensor(x, mesh, ["S(0)"]))
    check([TypeError], r"placements must be a list.*such as \[Shard\(0\)\]; Shard\(dim=0\) given",
          lambda: distribute_tensor(x, mesh, Shard(0)))
    check([TypeError], "device_mesh must be a tessera.DeviceMesh.*builtins.str given",
          lambda: distribute_tensor(x, "cpu", [Shard(0)]))
    check([TypeError], "redistribute: device_mesh must be a tessera.DeviceMesh.*builtins.str given",
          lambda: placed.redistribute("cpu", [Shard(1)]))
    check([TypeError], r"DeviceMesh\.__init__\(\) missing 1 required positional argument: 'mesh'",
          lambda: DeviceMesh("cpu"))
    check([TypeError], "tensor must be a torch.Tensor; list given",
          lambda: distribute_tensor([1.0], mesh, [Shard(0)]))
    check([AssertionError], "layout value not supported!",
          lambda: tessera.zeros(2, device_mesh=mesh, layout=torch.sparse_coo))
    check([ValueError], "Unrecognized reduce_op", lambda: Partial("median"))


@on_two_ranks
def test_from_local_and_redistribute(mesh):
    x = torch.ones(4, 4)
    placed = distribute_tensor(x, mesh, [Shard(0)])
    check([RuntimeError], "both shape and stride",
          lambda: DTensor.from_local(x, mesh, [Shard(0)], shape=(8, 4)))
    check([RuntimeError], "only accepts torch.Tensor",
          lambda: DTensor.from_local(placed, mesh, [Shard(0)]))
    check([RuntimeError], "placements is needed", lambda: placed.redistribute(mesh))
    check([ValueError, RuntimeError], "placement",
          lambda: placed.redistribute(mesh, [Shard(0), Shard(1)]))
    check([AssertionError], "mesh dimension does not match",
          lambda: tessera.zeros(4, device_mesh=mesh, placements=[Shard(0), Shard(0)]))


@on_two_ranks
def test_mixing_plain_tensors_names_the_fix(mesh):
    placed = distribute_tensor(torch.ones(4, 4), mesh, [Shard(0)])
    with pytest.raises(RuntimeError, match="distribute_tensor"):
        placed + torch.ones(4, 4)


def test_plain_tensors_count_as_replicated_on_request(on_ranks):
    whole, mask = torch.arange(15.0).reshape(5, 3), torch.arange(5) % 2 == 0

    def check(mesh):
        x = distribute_tensor(whole.clone().requires_grad_(), mesh, [Shard(0)])
        offset = torch.linspace(0, 1, 3)
        with tessera.experimental.implicit_replication():
            y = torch.where(mask[:, None], x, offset) * offset
            assert y.placements == (Shard(0),) or mesh.size() == 1
            y.sum().backward()
            torch.testing.assert_close(torch.cat([x.detach(), whole]).full_tensor(),
                                       torch.cat([whole, whole]))
            rows = x.detach()[torch.tensor([4, 0])]
            torch.testing.assert_close(rows.full_tensor(), whole[[4, 0]])
            with pytest.raises(RuntimeError, match="got mixed torch.Tensor and DTensor"):
                x * offset.clone().requires_grad_()
            with pytest.raises(RuntimeError, match="got mixed torch.Tensor and DTensor"):
                torch.ones(5, 3).add_(x.detach())
        expected = torch.where(mask[:, None], whole, offset) * offset
        torch.testing.assert_close(y.full_tensor(), expected)
        torch.testing.assert_close(x.grad.full_tensor(), mask[:, None] * offset.expand(5, 3))
        with pytest.raises(RuntimeError, match="got mixed torch.Tensor and DTensor"):
            x * offset

    on_ranks(check)


@on_two_ranks
def test_strict_mode(mesh):
    x = distribute_tensor(torch.ones(4, 4), mesh, [Shard(0)])
    y = distribute_tensor(torch.ones(4, 4), mesh, [Shard(1)])
    with tessera.experimental.strict_mode():
        with pytest.raises(RuntimeError, match="aten::add"):
            x + y
        with tessera.experimental.strict_mode(False):
            assert torch.equal((x + y).full_tensor(), torch.full((4, 4), 2.0))
    assert torch.equal((x + y).full_tensor(), torch.full((4, 4), 2.0))


def test_a_rank_that_raises_ends_the_others():
    def work(rank):
        if rank == 1:
            raise KeyError("lost it")
        tessera.functional_collectives.barrier()

    with pytest.raises(KeyError, match="lost it") as caught:
        tessera.run_ranks(3, work)
    assert "rank 1 of 3" in "".join(getattr(caught.value, "__notes__", []))


def test_a_mismatch_is_a_comm_error_with_its_place():
    def work(rank):
        x = torch.ones(2 + rank)
        tessera.functional_collectives.all_reduce(x, "sum", None).wait()

    with pytest.raises(tessera.CommError, match="all_reduce") as caught:
        tessera.run_ranks(2, work)
    assert caught.value.group == "world" and caught.value.operation == "all_reduce"
    assert isinstance(caught.value, RuntimeError) and caught.value.elapsed >= 0


def test_outside_of_ranks():
    with pytest.raises(ValueError, match="at least 1"):
        tessera.run_ranks(0, lambda rank: None)


@on_two_ranks
def test_what_a_dtensor_is_cannot_be_overwritten(mesh):
    x = distribute_tensor(torch.arange(4.), mesh, [Shard(0)])
    for name in ("placements", "device_mesh", "to_local"):
        check([AttributeError], f"'{name}' of a tensor cannot be set", lambda: setattr(x, name, None))
    assert x.placements == (Shard(0),)


@on_two_ranks
def test_meshes_are_shared_by_copies_and_not_pickled(mesh):
    net = torch.nn.Linear(2, 2)
    net.mesh = mesh
    assert copy.deepcopy(net).mesh is mesh and copy.copy(mesh) is mesh
    check([pickle.PicklingError], "a DeviceMesh cannot be pickled.*init_device_mesh",
          lambda: pickle.dumps(mesh))


@on_two_ranks
def test_words_are_those_of_python(mesh):
    x = distribute_tensor(torch.arange(4.), mesh, [Shard(0)])
    wrong = local_map(lambda a: 3, out_placements=[Shard(0)], in_placements=([Shard(0)],))
    check([AssertionError], "write None for it in out_placements", lambda: wrong(x))
