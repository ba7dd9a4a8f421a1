"""DTensors are plain torch.Tensor objects with more attributes."""

import copy
import io
import pickle

import pytest
import torch

import tessera
from tessera import DTensor, Partial, Replicate, Shard, distribute_tensor


def values(*shape):
    return torch.arange(float(torch.tensor(shape).prod())).reshape(shape) + 1


@pytest.mark.parametrize("placement", [Replicate(), Shard(0), Shard(1), Shard(-1), Partial()], ids=str)
def test_distribute_and_gather(on_ranks, placement):
    whole = values(5, 3)

    def check(mesh):
        x = distribute_tensor(whole, mesh, [placement])
        assert type(x) is torch.Tensor
        assert isinstance(x, DTensor) and isinstance(x, torch.Tensor)
        assert x.shape == whole.shape
        assert torch.equal(x.full_tensor(), whole)
        assert not isinstance(x.full_tensor(), DTensor)
        back = DTensor.from_local(x.to_local(), mesh, x.placements, shape=x.shape, stride=x.stride())
        assert torch.equal(back.full_tensor(), whole)

    on_ranks(check)


def test_uneven_parts_find_their_global_shape(on_ranks):
    def check(mesh):
        x = distribute_tensor(values(5, 3), mesh, [Shard(0)])
        y = DTensor.from_local(x.to_local(), mesh, [Shard(0)])
        assert y.shape == (5, 3)
        assert torch.equal(y.full_tensor(), values(5, 3))

    on_ranks(check)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1,)], ids=str)
def test_awkward_shapes(on_ranks, shape):
    whole = torch.ones(shape)

    def check(mesh):
        placements = [Shard(0)] if shape else [Replicate()]
        x = distribute_tensor(whole, mesh, placements)
        assert torch.equal((x + x).full_tensor(), whole + whole)

    on_ranks(check)


def test_operations_and_gradients_equal_plain_ones(on_ranks):
    a, w = values(6, 4) / 10, values(4, 5) / 20

    def loss(x, y):
        return torch.tanh(x @ y).square().mean()

    plain_a, plain_w = a.clone().requires_grad_(), w.clone().requires_grad_()
    loss(plain_a, plain_w).backward()

    def check(mesh):
        x = distribute_tensor(a.clone().requires_grad_(), mesh, [Shard(0)])
        y = distribute_tensor(w.clone().requires_grad_(), mesh, [Shard(1)])
        value = loss(x, y)
        value.backward()
        torch.testing.assert_close(value.full_tensor(), loss(a, w))
        torch.testing.assert_close(x.grad.full_tensor(), plain_a.grad)
        torch.testing.assert_close(y.grad.full_tensor(), plain_w.grad)
        assert isinstance(x.grad, DTensor)

    on_ranks(check)


def test_indexing_moves_data_while_other_ranks_need_the_lock(on_ranks):
    whole = values(7, 3)

    def check(mesh):
        x = distribute_tensor(whole, mesh, [Shard(0)])
        for row in range(7):
            assert torch.equal(x[row].full_tensor(), whole[row])
        assert torch.equal(x[1:5:2, -1].full_tensor(), whole[1:5:2, -1])
        assert float(x.sum()) == float(whole.sum())
        assert bool((x > 0).all())

    on_ranks(check)


def test_redistribute(on_ranks):
    whole = values(5, 4)

    def check(mesh):
        x = distribute_tensor(whole, mesh, [Shard(0)])
        for placement in (Shard(1), Replicate(), Shard(0)):
            x = x.redistribute(mesh, [placement])
            assert x.placements == (placement,)
            assert torch.equal(x.full_tensor(), whole)
        late = x.redistribute(placements=[Replicate()], async_op=True)
        assert torch.equal(late.to_local(), whole)
        half = x.redistribute(placements=[Replicate()], forward_dtype=torch.bfloat16)
        assert half.dtype is torch.bfloat16
        assert x.device_mesh == mesh

    on_ranks(check)


def test_attributes_are_of_dtensors_only():
    plain = torch.ones(2)
    for name in ("to_local", "full_tensor", "redistribute", "placements", "device_mesh"):
        assert not hasattr(plain, name)
        with pytest.raises(AttributeError, match=f"'{name}' is of DTensors, and this is a plain tensor"):
            getattr(plain, name)
    assert not isinstance(plain, DTensor)
    assert issubclass(DTensor, torch.Tensor)
    assert "global" not in repr(plain) and repr(plain) == "tensor([1., 1.])"
    with pytest.raises(TypeError, match="made by tessera.distribute_tensor"):
        DTensor(plain)


def test_repr_shows_shape_mesh_placements_and_part(on_ranks):
    def check(mesh):
        x = distribute_tensor(torch.ones(4, 2), mesh, [Shard(0)]).requires_grad_()
        text = repr(x)
        rows = x.to_local().shape[0]
        for part in ("DTensor(shape=(4, 2)", repr(mesh), "Shard(dim=0)", repr(torch.ones(rows, 2)),
                     "requires_grad=True"):
            assert part in text
        assert "grad_fn=<MulBackward0>" in repr(x * 2)
        assert repr(torch.nn.Parameter(x.detach())).startswith("Parameter containing:\nDTensor(")

    on_ranks(check)


def test_deepcopy_copies_values_gradients_and_layout(on_ranks):
    def check(mesh):
        x = distribute_tensor(values(4, 2), mesh, [Shard(0)]).requires_grad_()
        (x * x).sum().backward()
        y = copy.deepcopy(x)
        with torch.no_grad():
            x.zero_()
        assert y.requires_grad and y.placements == x.placements
        assert torch.equal(y.full_tensor(), values(4, 2))
        assert torch.equal(y.grad.full_tensor(), 2 * values(4, 2))
        both = copy.deepcopy([x, x])
        assert both[0] is both[1]
        parameter = copy.deepcopy(torch.nn.Parameter(x.detach()))
        assert isinstance(parameter, torch.nn.Parameter) and isinstance(parameter, DTensor)
        with pytest.raises(RuntimeError, match="Only Tensors created explicitly by the user"):
            copy.deepcopy(x * 2)

    on_ranks(check)


def test_pickling_is_refused(on_ranks):
    def check(mesh):
        x = distribute_tensor(values(4, 2), mesh, [Shard(0)])
        for save in (pickle.dumps, lambda value: torch.save(value, io.BytesIO())):
            with pytest.raises(pickle.PicklingError, match="cannot be pickled.*full_tensor"):
                save(x)
        assert pickle.loads(pickle.dumps([Shard(1), Replicate(), Partial("max")])) == [
            Shard(1), Replicate(), Partial("max")]

    on_ranks(check)


def test_numpy_and_data_ptr_fail_loudly(on_ranks):
    def check(mesh):
        x = distribute_tensor(values(4, 2), mesh, [Shard(0)])
        for name in ("numpy", "tolist", "__array__", "untyped_storage"):
            with pytest.raises(RuntimeError, match=f"{name}: the elements.*x.full_tensor().*x.to_local()"):
                getattr(x, name)()
        with pytest.raises(RuntimeError, match="use to_local"):
            x.data_ptr()
        assert x.to_local().numpy().shape == x.to_local().shape and values(2).tolist() == [1.0, 2.0]

    on_ranks(check)


def test_compiled_functions_take_local_parts():
    def twice(x):
        return 2 * x + 1

    def check(rank):
        mesh = tessera.init_device_mesh("cpu", (1,))
        x = distribute_tensor(values(4, 2), mesh, [Shard(0)])
        compiled = torch.compile(twice, backend="eager")
        with pytest.raises(Exception, match="torch.compile and torch.export do not take DTensors"):
            compiled(x)
        mapped = tessera.experimental.local_map(compiled, out_placements=[Shard(0)])
        assert torch.equal(mapped(x).full_tensor(), twice(values(4, 2)))

    tessera.run_ranks(1, check)


def test_two_dim_mesh():
    whole = values(6, 5)

    def check(rank):
        mesh = tessera.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        x = distribute_tensor(whole, mesh, [Shard(0), Shard(1)])
        assert torch.equal(x.full_tensor(), whole)
        y = x.redistribute(placements=[Replicate(), Shard(0)])
        assert torch.equal(y.full_tensor(), whole)
        assert x.to_local().shape == (3, 3 - rank % 2)

    tessera.run_ranks(4, check)


def test_factories(on_ranks):
    def check(mesh):
        for placement in (Shard(0), Replicate()):
            options = dict(device_mesh=mesh, placements=[placement])
            assert torch.equal(tessera.zeros(5, 2, **options).full_tensor(), torch.zeros(5, 2))
            assert torch.equal(tessera.ones((5, 2), **options).full_tensor(), torch.ones(5, 2))
            assert torch.equal(tessera.full((5,), 3.5, **options).full_tensor(), torch.full((5,), 3.5))
            assert torch.equal(tessera.arange(5, **options).full_tensor(), torch.arange(5))
            assert tessera.empty(5, 2, dtype=torch.int32, **options).dtype is torch.int32
            tessera.manual_seed(3)
            first = tessera.randn(5, 2, requires_grad=True, **options)
            tessera.manual_seed(3)
            second = tessera.randn(5, 2, device_mesh=mesh)
            assert first.requires_grad and torch.equal(first.full_tensor(), second.full_tensor())
            assert 0 <= float(tessera.rand(5, **options).min()) < 1
        with mesh:
            assert tessera.zeros(3).device_mesh == mesh

    on_ranks(check)


def test_random_values_do_not_depend_on_the_number_of_ranks():
    def draw(rank):
        tessera.manual_seed(11)
        mesh = tessera.init_device_mesh("cpu", (tessera.get_world_size(),))
        x = tessera.randn(7, 3, device_mesh=mesh, placements=[Shard(0)])
        return torch.nn.functional.dropout(x, 0.5).full_tensor()

    seen = [value for ranks in (1, 2, 3, 4) for value in tessera.run_ranks(ranks, draw)]
    assert all(torch.equal(seen[0], value) for value in seen[1:])
