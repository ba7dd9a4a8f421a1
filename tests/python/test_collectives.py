"""Functional collectives."""

import pytest
import torch

import tessera
import tessera.functional_collectives as funcol


def test_collectives(on_ranks):
    def check(mesh):
        n, me = mesh.size(), mesh.get_rank()
        x = torch.full((2, n), float(me + 1))
        total = n * (n + 1) / 2
        assert torch.equal(funcol.all_reduce(x, "sum", mesh).wait(), torch.full((2, n), total))
        assert torch.equal(funcol.all_reduce(x, "max", (mesh, 0)), torch.full((2, n), float(n)))
        assert torch.equal(funcol.all_gather_tensor(x, 0, mesh)[::2, 0],
                           torch.arange(1.0, n + 1))
        assert torch.equal(funcol.reduce_scatter_tensor(x, "sum", 1, mesh), torch.full((2, 1), total))
        assert torch.equal(funcol.broadcast(x, n - 1, mesh), torch.full((2, n), float(n)))
        ranks = torch.arange(float(n))
        swapped = funcol.all_to_all_single(torch.full((n,), float(me)), None, None, mesh)
        assert torch.equal(swapped, ranks)
        around = funcol.permute_tensor(x, [(i + 1) % n for i in range(n)], mesh)
        assert float(around[0, 0]) == (me - 1) % n + 1
        several = funcol.all_reduce_coalesced([x, x.double()], "sum", mesh)
        assert several[1].dtype is torch.float64 and float(several[0][0, 0]) == total
        assert float(funcol.all_reduce(x, "sum", list(range(n)))[0, 0]) == total
        funcol.barrier(mesh.get_group("tp"))

    on_ranks(check)


def test_results_are_on_their_way_until_used(on_ranks):
    def check(mesh):
        x = torch.ones(3)
        y = funcol.all_reduce(x, "sum", mesh)
        assert torch.equal(y.wait(), torch.full((3,), float(mesh.size())))
        assert torch.equal(y.wait(), funcol.wait_tensor(y))
        assert x.wait() is x

    on_ranks(check)


def test_collectives_differentiate(on_ranks):
    def check(mesh):
        x = torch.ones(mesh.size(), requires_grad=True)
        funcol.all_gather_tensor_autograd(x, 0, mesh).sum().backward()
        assert torch.equal(x.grad, torch.full((mesh.size(),), float(mesh.size())))

    on_ranks(check)


def test_uneven_reduce_scatter_is_refused():
    def check(rank):
        with pytest.raises(AssertionError, match="must be a multiple of group_size"):
            funcol.reduce_scatter_tensor(torch.ones(3), "sum", 0, None)
        with pytest.raises(ValueError, match="given as group"):
            funcol.all_reduce(torch.ones(3), "sum", "tp")

    tessera.run_ranks(2, check)
