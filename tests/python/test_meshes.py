"""Meshes and placements as values."""

import pytest
import torch

import tessera
from tessera import DeviceMesh, Partial, Placement, Replicate, Shard, init_device_mesh


def test_placements_are_values():
    assert Shard(1) == Shard(1) != Shard(0) and Shard(1).dim == 1
    assert len({Shard(0), Shard(0), Replicate(), Partial(), Partial("sum"), Partial("max")}) == 4
    assert Shard(0).is_shard() and Shard(2).is_shard(2) and not Shard(2).is_shard(0)
    assert Replicate().is_replicate() and not Replicate().is_shard() and not Replicate().is_partial()
    assert Partial("avg").is_partial() and Partial("avg").is_partial("avg")
    assert Partial().reduce_op == "sum"
    assert all(isinstance(p, Placement) for p in (Shard(0), Replicate(), Partial()))
    assert [str(p) for p in (Shard(0), Replicate(), Partial("max"))] == ["S(0)", "R", "P(max)"]
    assert repr([Shard(0), Replicate(), Partial("max")]) == "[Shard(dim=0), Replicate(), Partial(max)]"
    assert Shard(0) != "S(0)"


def test_placements_of_pytorch_are_understood():
    import torch.distributed.tensor as theirs

    def check(rank):
        mesh = init_device_mesh("cpu", (2,))
        for placement, ours in ((theirs.Shard(1), Shard(1)), (theirs.Replicate(), Replicate()),
                                (theirs.Partial("sum"), Partial("sum"))):
            assert tessera.distribute_tensor(torch.ones(4, 4), mesh, [placement]).placements == (ours,)

    tessera.run_ranks(2, check)


def test_mesh_of_two_dims():
    def check(rank):
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        assert repr(mesh) == "DeviceMesh((dp=2, tp=2), 'cpu')"
        assert mesh.shape == (2, 2) and mesh.ndim == 2 and mesh.size() == 4 and mesh.size(1) == 2
        assert mesh.mesh.tolist() == [[0, 1], [2, 3]] and mesh.device_type == "cpu"
        assert mesh.mesh_dim_names == ("dp", "tp")
        assert mesh.get_rank() == rank and mesh.get_coordinate() == (rank // 2, rank % 2)
        assert mesh.get_local_rank("tp") == rank % 2 == mesh.get_local_rank(1)
        assert mesh["tp"].mesh.tolist() == [rank // 2 * 2, rank // 2 * 2 + 1]
        assert mesh["dp", "tp"] is mesh
        assert mesh.get_group("dp").ranks == [rank % 2, rank % 2 + 2]
        assert [group.size() for group in mesh.get_all_groups()] == [2, 2]
        assert mesh._flatten("all").shape == (4,)
        assert mesh._flatten("all")._unflatten(0, (2, 2), ("dp", "tp")) == mesh
        assert mesh == init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        assert hash(mesh) == hash(init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp")))
        assert mesh != init_device_mesh("cpu", (2, 2)) and mesh != 3
        assert DeviceMesh.from_group(mesh.get_group("tp"), "cpu").size() == 2

    tessera.run_ranks(4, check)


def test_flattened_dims_are_known_by_name():
    def check(rank):
        mesh = init_device_mesh("cpu", (2, 1, 2), mesh_dim_names=("dp", "cp", "tp"))
        flat = mesh["dp", "cp"]._flatten("data")
        assert flat.mesh_dim_names == ("data",) and flat.mesh.tolist() == [rank % 2, rank % 2 + 2]
        assert mesh["data"] is flat and mesh["dp", "cp"]._flatten("data") is flat
        assert mesh["dp", "cp"]._flatten().mesh_dim_names == ("dp_cp",) and mesh["dp_cp"].size() == 2
        assert mesh["tp"]._flatten() == mesh["tp"]
        assert mesh._flatten("all").size() == 4
        total = tessera.functional_collectives.all_reduce(torch.ones(1), "sum", mesh["data"])
        assert float(total) == 2
        with pytest.raises(ValueError, match="tp already exists for submesh"):
            mesh["dp", "cp"]._flatten("tp")
        with pytest.raises(ValueError, match="data has been created before"):
            mesh["cp", "tp"]._flatten("data")
        with pytest.raises(KeyError, match=r"Invalid mesh_dim_names.*'data'.*stands alone"):
            mesh["data", "tp"]
        with pytest.raises(RuntimeError, match="Cannot flatten a DeviceMesh without"):
            init_device_mesh("cpu", (2, 2))._flatten()

    tessera.run_ranks(4, check)


def test_mesh_of_groups():
    def check(rank):
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        again = DeviceMesh.from_group(mesh.get_all_groups(), "cpu", mesh.mesh, mesh_dim_names=("dp", "tp"))
        assert again == mesh
        one = DeviceMesh.from_group([mesh.get_group("tp")], "cpu", mesh_dim_names=("tp",))
        assert one.mesh.tolist() == mesh["tp"].mesh.tolist() and one.mesh_dim_names == ("tp",)
        with pytest.raises(ValueError, match="at least one ProcessGroup"):
            DeviceMesh.from_group([], "cpu")
        with pytest.raises(ValueError, match="Must pass mesh if passing multiple ProcessGroups"):
            DeviceMesh.from_group(mesh.get_all_groups(), "cpu")
        with pytest.raises(ValueError, match="Invalid mesh.*for ProcessGroups with ranks"):
            DeviceMesh.from_group(mesh.get_all_groups()[::-1], "cpu", mesh.mesh)
        with pytest.raises(ValueError, match="Invalid mesh.*for ProcessGroup with ranks"):
            DeviceMesh.from_group(mesh.get_group("tp"), "cpu", [0, 3])

    tessera.run_ranks(4, check)


def test_chunks_of_shards():
    sizes = [Shard.local_shard_size_and_offset(5, 4, rank) for rank in range(4)]
    assert sizes == [(2, 0), (2, 2), (1, 4), (0, 5)]


def test_mesh_of_some_ranks():
    def check(rank):
        mesh = DeviceMesh("cpu", [2, 0])
        assert (mesh.get_coordinate() is None) == (rank == 1)
        x = tessera.distribute_tensor(torch.arange(4.0), mesh, [Shard(0)])
        assert x.to_local().tolist() == {0: [2.0, 3.0], 1: [], 2: [0.0, 1.0]}[rank]

    tessera.run_ranks(3, check)


def test_results_come_in_order_and_arguments_are_passed():
    assert tessera.run_ranks(3, lambda rank, a, b: (rank, a + b), 1, 2) == [(0, 3), (1, 3), (2, 3)]
    assert tessera.run_ranks(2, lambda rank: tessera.get_world_size()) == [2, 2]
    assert not tessera.is_initialized()
