"""DTensor: what `torch.Tensor` objects are whose elements are spread over a mesh.

A DTensor is a plain `torch.Tensor` for Python; only its implementation is ours. So there is no Python
between an operation and the core, and everything that takes tensors takes DTensors. The names that only
DTensors have are added to `torch.Tensor` here, as attributes that plain tensors do not have.
"""

import copy
import functools
import pickle
from typing import Any, Optional, Sequence, Tuple, cast

import torch

from . import _C
from .device_mesh import DeviceMesh, _current_mesh
from .errors import InvalidArgument, UnknownDim
from .placement_types import Placement, Replicate

__all__ = ["DTensor", "distribute_tensor"]


class _DTensorType(torch._C._TensorMeta):
    def __instancecheck__(cls, instance) -> bool:
        return _C.is_dtensor(instance)


class DTensor(torch.Tensor, metaclass=_DTensorType):
    """What tensors with a mesh and placements are: `isinstance(x, DTensor)` asks for that.

    There are no objects of this class itself: DTensors are `torch.Tensor` (or `torch.nn.Parameter`).
    Make them with `distribute_tensor`, `DTensor.from_local` and the factories.
    """

    def __new__(cls, *args, **kwargs):
        raise TypeError("DTensors are made by tessera.distribute_tensor, tessera.DTensor.from_local and "
                        "the factories tessera.zeros, tessera.randn, ...")

    @staticmethod
    def from_local(local_tensor: torch.Tensor, device_mesh: Optional[DeviceMesh] = None,
                   placements: Optional[Sequence[Placement]] = None, *, run_check: bool = False,
                   shape: Optional[Sequence[int]] = None, stride: Optional[Sequence[int]] = None,
                   grad_placements: Optional[Sequence[Placement]] = None) -> "DTensor":
        """Returns the DTensor whose part on this rank is `local_tensor`, without copying it.

        Differentiable, twice. Parts may be uneven as `torch.chunk` cuts: without `shape`, and where a
        mesh dim of several ranks shards, the ranks tell each other their sizes.

        Args:
            device_mesh: without it, that of the `with mesh:` around.
            placements: one per mesh dim; Replicate along all of them unless given.
            run_check: compare shapes and dtypes over the mesh first, and give replicated parts the
                values of the first rank.
            shape, stride: those of the whole; to be given both or not at all.
            grad_placements: how the gradient comes back to `local_tensor`.
        """
        if _C.is_dtensor(local_tensor) or not isinstance(local_tensor, torch.Tensor):
            given = "a DTensor" if _C.is_dtensor(local_tensor) else type(local_tensor).__name__
            raise InvalidArgument(f"from_local only accepts torch.Tensor: a plain local part, not {given}")
        if (shape is None) != (stride is None):
            raise InvalidArgument("from_local: Please pass both shape and stride at the same time")
        mesh = _mesh_for("from_local", device_mesh)
        wanted = _placements_for("from_local", mesh, placements)
        result = _C.from_local(local_tensor, mesh, wanted, run_check, shape, grad_placements)
        if stride is not None and tuple(stride) != result.stride():
            raise InvalidArgument(f"from_local: stride {tuple(stride)} given for a tensor whose strides "
                                  f"are {result.stride()}; pass those")
        return result

    def to_local(self, *, grad_placements: Optional[Sequence[Placement]] = None) -> torch.Tensor:
        """Returns this rank's part, a plain tensor that shares the DTensor's memory. Differentiable,
        twice; `grad_placements` says how the gradient that comes back is placed."""
        return _C.to_local(self, grad_placements)

    def full_tensor(self, *, grad_placements: Optional[Sequence[Placement]] = None) -> torch.Tensor:
        """Returns the whole as a plain tensor on every rank of the mesh. Differentiable, twice."""
        return _C.full_tensor(self, grad_placements)

    def redistribute(self, device_mesh: Optional[DeviceMesh] = None,
                     placements: Optional[Sequence[Placement]] = None, *, async_op: bool = False,
                     forward_dtype: Optional[torch.dtype] = None,
                     backward_dtype: Optional[torch.dtype] = None) -> "DTensor":
        """Returns the same tensor placed otherwise, on the same mesh or on another one. Differentiable,
        twice.

        Args:
            async_op: return at once; the values come when the result is first used.
            forward_dtype: the dtype that is sent and that the result has.
            backward_dtype: the dtype in which the gradient is sent.
        """
        if placements is None:
            raise InvalidArgument("placements is needed for redistribute!")
        if device_mesh is not None:
            _mesh_for("redistribute", device_mesh)
        return _C.redistribute(self, device_mesh, placements, async_op, forward_dtype, backward_dtype)

    @property
    def placements(self) -> Tuple[Placement, ...]:
        """One placement per mesh dim."""
        return _C.placements_of(self)

    @property
    def device_mesh(self) -> DeviceMesh:
        """The mesh that it is spread over."""
        return _C.mesh_of(self)

    @property
    def _local_tensor(self) -> torch.Tensor:
        """This rank's part, without history."""
        return _C.to_local(self.detach(), None)

    def explain_redistribute(self, placements: Sequence[Placement]) -> str:
        """Says what `redistribute` to these placements would move: steps, bytes, alternatives."""
        return _C.explain(self, placements)


def _mesh_for(what: str, mesh: Optional[DeviceMesh]) -> DeviceMesh:
    """`mesh`, or that of the `with mesh:` around."""
    if mesh is None:
        return _current_mesh()
    if not isinstance(mesh, DeviceMesh):
        raise TypeError(f"{what}: device_mesh must be a tessera.DeviceMesh, as tessera.init_device_mesh makes; "
                        f"{type(mesh).__module__}.{type(mesh).__qualname__} given")
    return mesh


def _placements_for(what: str, mesh: DeviceMesh,
                    placements: Optional[Sequence[Placement]]) -> Tuple[Placement, ...]:
    """`placements` as a tuple; Replicate along all mesh dims unless given."""
    if placements is None:
        return (Replicate(),) * mesh.ndim
    if not isinstance(placements, (list, tuple)):
        raise TypeError(f"{what}: placements must be a list or a tuple with one placement per mesh dim, such as "
                        f"[Shard(0)]; {placements!r} given")
    return tuple(placements)


def _check_shard_dims(what: str, placements: Sequence[Placement], ndim: int) -> None:
    for placement in placements:
        dim = getattr(placement, "dim", None)
        if dim is not None and not -ndim <= dim < ndim:
            raise UnknownDim(f"{what}: {placement!r} given for a tensor of {ndim} dim(s): the dim is "
                             f"greater than tensor ndim or must be normalized; allowed are {-ndim} to "
                             f"{ndim - 1}")


def distribute_tensor(tensor: torch.Tensor, device_mesh: Optional[DeviceMesh] = None,
                      placements: Optional[Sequence[Placement]] = None, *,
                      src_data_rank: Optional[int] = 0) -> DTensor:
    """Returns `tensor`, which must have the same shape and dtype on all ranks, as a DTensor.

    It is a leaf that requires gradients if `tensor` does; of a `torch.nn.Parameter` it is one too.

    Args:
        device_mesh: without it, that of the `with mesh:` around.
        placements: one per mesh dim; Replicate along all of them unless given.
        src_data_rank: whose values are taken, by the place in the mesh. None says that all ranks have
            equal values: each takes its part, and nothing is communicated.
    """
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"distribute_tensor: tensor must be a torch.Tensor; {type(tensor).__name__} given")
    mesh = _mesh_for("distribute_tensor", device_mesh)
    wanted = _placements_for("distribute_tensor", mesh, placements)
    if len(wanted) != mesh.ndim:
        raise InvalidArgument(f"distribute_tensor: `placements` must have the same length as "
                              f"`device_mesh.ndim`! Found placements length: {len(wanted)}, and "
                              f"device_mesh.ndim: {mesh.ndim}.")
    _check_shard_dims("distribute_tensor", wanted, tensor.dim())
    result = _C.distribute_tensor(tensor, mesh, wanted, src_data_rank)
    if isinstance(tensor, torch.nn.Parameter) and not _C.is_dtensor(tensor):
        parameter = torch.nn.Parameter(result.detach(), requires_grad=tensor.requires_grad)
        return cast(DTensor, parameter)
    return result


# ---- what torch.Tensor gets ----------------------------------------------------------------------


def _text(tensor: DTensor) -> str:
    """`DTensor(shape=(8, 8), mesh=..., placements=..., local=tensor(...))`."""
    local = _C.to_local(tensor.detach(), None)
    notes = ""
    if tensor.grad_fn is not None:
        notes = f", grad_fn=<{type(tensor.grad_fn).__name__}>"
    elif tensor.requires_grad:
        notes = ", requires_grad=True"
    return (f"DTensor(shape={tuple(tensor.shape)}, device_mesh={tensor.device_mesh!r}, "
            f"placements={tensor.placements!r}, local_tensor={local!r}{notes})")


def _deepcopy(tensor: torch.Tensor, memo) -> torch.Tensor:
    if not tensor.is_leaf:
        raise RuntimeError("Only Tensors created explicitly by the user (graph leaves) support the "
                           "deepcopy protocol; take detach() first")
    if id(tensor) in memo:
        return memo[id(tensor)]
    with torch.no_grad():
        result = tensor.detach().clone()
        if isinstance(tensor, torch.nn.Parameter):
            result = torch.nn.Parameter(result, requires_grad=tensor.requires_grad)
        else:
            result.requires_grad_(tensor.requires_grad)
        if tensor.grad is not None:
            result.grad = copy.deepcopy(tensor.grad, memo)
    result.__dict__ = copy.deepcopy(tensor.__dict__, memo)
    memo[id(tensor)] = result
    return result


def _refuse_pickle(_tensor) -> None:
    raise pickle.PicklingError(
        "a DTensor cannot be pickled: what it holds is spread over ranks and bound to a mesh. Save "
        "x.full_tensor() (on one rank), or x.to_local() on every rank, and distribute it again")


def _refusing(name: str, plain: Any) -> Any:
    """The method of plain tensors, which DTensors refuse."""

    @functools.wraps(plain)
    def method(self, *args, **kwargs):
        if _C.is_dtensor(self):
            # torch.compile and torch.export begin by asking for the storage.
            note = "" if name != "untyped_storage" else (
                "; torch.compile and torch.export do not take DTensors: compile a function of local "
                "tensors, and call it by tessera.experimental.local_map")
            raise InvalidArgument(f"{name}: the elements of a DTensor are spread over ranks; take "
                                  "x.full_tensor() (all of them, on every rank) or x.to_local() (this "
                                  f"rank's){note}")
        return plain(self, *args, **kwargs)

    return method


def _install() -> None:
    tensor_class: Any = torch.Tensor
    for name in ("to_local", "full_tensor", "redistribute", "explain_redistribute"):
        setattr(tensor_class, name, _C.tensor_method(name, vars(DTensor)[name]))
    for name in ("placements", "device_mesh", "_local_tensor"):
        setattr(tensor_class, name, _C.tensor_property(name, vars(DTensor)[name].fget))

    plain_repr, plain_deepcopy = tensor_class.__repr__, tensor_class.__deepcopy__
    plain_reduce = tensor_class.__reduce_ex__

    def __repr__(self, *, tensor_contents=None):
        if _C.is_dtensor(self):
            return _text(self)
        return plain_repr(self, tensor_contents=tensor_contents)

    def __deepcopy__(self, memo):
        return _deepcopy(self, memo) if _C.is_dtensor(self) else plain_deepcopy(self, memo)

    def __reduce_ex__(self, proto):
        if _C.is_dtensor(self):
            _refuse_pickle(self)
        return plain_reduce(self, proto)

    tensor_class.__repr__ = __repr__
    tensor_class.__deepcopy__ = __deepcopy__
    tensor_class.__reduce_ex__ = __reduce_ex__

    # What reads memory would find none. The core says so too, in fewer words.
    for name in ("numpy", "tolist", "__array__", "untyped_storage"):
        setattr(tensor_class, name, _refusing(name, getattr(tensor_class, name)))

    def wait(self):
        """Waits until the values of an asynchronous result are there; any other tensor is returned at
        once."""
        return _C.wait(self)

    tensor_class.wait = wait


_install()
