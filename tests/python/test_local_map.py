"""Functions of local tensors, called with DTensors: the behaviour that PyTorch's own tests fix."""

from collections import namedtuple

import pytest
import torch

import tessera
import tessera.functional_collectives as funcol
from tessera import DTensor, Replicate, Shard, distribute_tensor
from tessera.debug import CommDebugMode
from tessera.experimental import local_map

names = torch.ops.c10d_functional
ROWS, COLUMNS, WHOLE = [Shard(0)], [Shard(1)], [Replicate()]


def equal_everywhere(mesh, x, y):
    same = torch.tensor([torch.equal(x, y)])
    return bool(torch.all(funcol.all_gather_tensor(same, 0, mesh)))


def product_of_parts(mesh, a, b):
    return funcol.all_reduce(torch.mm(a, b), "sum", mesh).wait()


def gathered_product(mesh, a, b):
    return funcol.all_gather_tensor(torch.mm(a, b), 0, mesh).wait()


def matrices():
    generator = torch.Generator().manual_seed(1)
    return torch.randn(12, 8, generator=generator), torch.randn(8, 16, generator=generator)


def test_one_collective_in_the_function_is_all_there_is(on_ranks):
    w, x = matrices()

    def check(mesh):
        multiply = local_map(product_of_parts, out_placements=WHOLE,
                             in_placements=(None, COLUMNS, ROWS), device_mesh=mesh)
        a, b = distribute_tensor(w, mesh, COLUMNS), distribute_tensor(x, mesh, ROWS)
        with CommDebugMode() as counted:
            y = multiply(mesh, a, b)
        assert counted.get_total_counts() == 1
        assert all(placement.is_replicate() for placement in y.placements)
        torch.testing.assert_close(y.to_local(), w @ x)

    on_ranks(check)


def test_results_that_are_no_tensors(on_ranks):
    x, y = torch.ones(8, 8), torch.zeros(8, 8)

    def check(mesh):
        compare = local_map(equal_everywhere, out_placements=None)
        a, b = distribute_tensor(x, mesh, ROWS), distribute_tensor(y, mesh, ROWS)
        with CommDebugMode() as counted:
            same = compare(mesh, a, b)
        assert counted.get_total_counts() == 1 and same is False

    on_ranks(check)


def test_plain_arguments_give_plain_results(on_ranks):
    def check(mesh):
        x, w = torch.full((2, 4), mesh.get_rank() + 1.0), matrices()[0][:4, :4]
        multiply = local_map(gathered_product, out_placements=ROWS,
                             in_placements=(None, ROWS, WHOLE))
        with CommDebugMode() as counted:
            y = multiply(mesh, x, w)
        assert counted.get_total_counts() == 1
        assert counted.get_comm_counts()[names.all_gather_into_tensor] == 1
        assert counted.get_comm_counts()["all_gather_into_tensor"] == 1
        assert counted.get_comm_counts()[names.all_reduce] == 0
        assert not isinstance(y, DTensor)
        expected = funcol.all_gather_tensor(x, 0, mesh).wait() @ w
        torch.testing.assert_close(y, expected)

    on_ranks(check)


def test_in_placements_are_checked(on_ranks):
    w, x = matrices()

    def check(mesh):
        a, b = distribute_tensor(w, mesh, ROWS), distribute_tensor(x, mesh, WHOLE)
        for entries in ((ROWS, WHOLE), None):
            multiply = local_map(torch.mm, out_placements=ROWS, in_placements=entries)
            with CommDebugMode() as counted:
                y = multiply(a, b)
            assert counted.get_total_counts() == 0
            assert y.placements == (Shard(0),) and y.shape == (12, 16)
            torch.testing.assert_close(y.full_tensor(), w @ x)
        for entries in ((ROWS,), (ROWS, WHOLE, None)):
            with pytest.raises(AssertionError, match="in_placements length"):
                local_map(torch.mm, out_placements=ROWS, in_placements=entries)(a, b)
        with pytest.raises(AssertionError, match="expects placements but received"):
            local_map(torch.mm, out_placements=ROWS, in_placements=(None, WHOLE))(a, b)
        scale = local_map(torch.mul, out_placements=ROWS, in_placements=(ROWS, None))
        torch.testing.assert_close(scale(a, 2.0).full_tensor(), 2 * w)
        with pytest.raises(AssertionError, match="Non-Tensor input .*expects None"):
            local_map(torch.mul, out_placements=ROWS, in_placements=(ROWS, ROWS))(a, 2.0)
        if mesh.size() > 1:
            with pytest.raises(AssertionError, match="one PlacementType be provided for each output"):
                local_map(lambda v: (v, v, v), out_placements=(ROWS, ROWS))(a)
        with pytest.raises(AssertionError, match="expects None"):
            local_map(lambda v: (v, 3), out_placements=(ROWS, ROWS))(a)

    on_ranks(check)


def test_inputs_are_redistributed_on_request_only(on_ranks):
    w, x = matrices()

    def check(mesh):
        a, b = distribute_tensor(w, mesh, ROWS), distribute_tensor(x, mesh, COLUMNS)
        options = dict(out_placements=WHOLE, in_placements=(None, COLUMNS, ROWS), device_mesh=mesh)
        with CommDebugMode() as counted:
            y = local_map(product_of_parts, redistribute_inputs=True, **options)(mesh, a, b)
        assert counted.get_total_counts() == (3 if mesh.size() > 1 else 1)
        torch.testing.assert_close(y.to_local(), w @ x)
        strict = local_map(product_of_parts, redistribute_inputs=False, **options)
        with pytest.raises(ValueError, match="set redistribute_inputs=True"):
            strict(mesh, a, b)

    on_ranks(check)


Pair = namedtuple("Pair", "left right")


def test_trees_go_in_and_come_out(on_ranks):
    w, _ = matrices()

    def check(mesh):
        a = distribute_tensor(w, mesh, ROWS)

        def work(pair, extra, *, scale):
            assert not isinstance(pair.left, DTensor) and not isinstance(extra["x"][0], DTensor)
            return {"sum": pair.left + extra["x"][0], "rest": [pair.right * scale, "text"]}

        mapped = local_map(work, out_placements=(ROWS, ROWS, None),
                           in_placements=(ROWS, ROWS, ROWS, None))
        result = mapped(Pair(a, a), {"x": [a, 5]}, scale=3.0)
        torch.testing.assert_close(result["sum"].full_tensor(), 2 * w)
        torch.testing.assert_close(result["rest"][0].full_tensor(), 3 * w)
        assert result["rest"][1] == "text"

    on_ranks(check)


def test_decorator_keeps_the_name(on_ranks):
    def check(mesh):
        @local_map(out_placements=ROWS)
        def twice(x):
            """Doubles."""
            return 2 * x

        assert twice.__name__ == "twice" and twice.__doc__ == "Doubles."
        x = distribute_tensor(torch.ones(5, 2), mesh, ROWS)
        y = twice(x)
        assert y.shape == (5, 2) and torch.equal(y.full_tensor(), torch.full((5, 2), 2.0))

    on_ranks(check)


def test_gradients_flow_through(on_ranks):
    w, x = matrices()
    plain_w, plain_x = w.clone().requires_grad_(), x.clone().requires_grad_()
    (plain_w @ plain_x).square().sum().backward()

    def check(mesh):
        a = distribute_tensor(w.clone().requires_grad_(), mesh, COLUMNS)
        b = distribute_tensor(x.clone().requires_grad_(), mesh, ROWS)
        multiply = local_map(product_of_parts, out_placements=WHOLE,
                             in_placements=(None, COLUMNS, ROWS), device_mesh=mesh)
        multiply(mesh, a, b).square().sum().backward()
        torch.testing.assert_close(a.grad.full_tensor(), plain_w.grad)
        torch.testing.assert_close(b.grad.full_tensor(), plain_x.grad)

    on_ranks(check)


def test_copies_that_differ_are_found():
    def check(rank):
        mesh = tessera.init_device_mesh("cpu", (2,))
        x = distribute_tensor(torch.ones(4), mesh, WHOLE)
        mapped = local_map(lambda v: v + rank, out_placements=WHOLE, check_outputs=True)
        with pytest.raises(ValueError, match="rank"):
            mapped(x)

    tessera.run_ranks(2, check)


def test_sizes_that_depend_on_the_rank():
    def check(rank):
        mesh = tessera.init_device_mesh("cpu", (2,))
        x = distribute_tensor(torch.ones(8, 3), mesh, ROWS)
        asked = local_map(lambda v: v[:2 - rank], out_placements=ROWS, out_shapes=(None,))
        assert asked(x).shape == (3, 3)
        with pytest.raises(ValueError, match="cannot be R along mesh dim 0"):
            local_map(torch.relu, out_placements=ROWS, in_grad_placements=(WHOLE,))(x)
        y = local_map(lambda v: v[:, :3 - rank], out_placements=ROWS)(x)
        with pytest.raises(tessera.errors.CommError, match="having taken output 0 of local_map"):
            y.full_tensor()

    tessera.run_ranks(2, check)


def test_exceptions_of_the_function_come_out_as_they_are(on_ranks):
    def check(mesh):
        x = distribute_tensor(torch.ones(4), mesh, WHOLE)

        def fail(_):
            raise LookupError("mine")

        with pytest.raises(LookupError, match="mine"):
            local_map(fail, out_placements=WHOLE)(x)

    on_ranks(check)
