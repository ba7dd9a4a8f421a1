"""`local_map`, which calls functions of local tensors with DTensors; and what operations may do by
themselves."""

import functools
from typing import Callable, Optional, Sequence, Tuple, Union

from . import _C
from ._guard import guarding
from .device_mesh import DeviceMesh
from .placement_types import Placement

__all__ = ["implicit_replication", "local_map", "strict_mode"]

PlacementType = Optional[Sequence[Placement]]


def local_map(func: Optional[Callable] = None,
              out_placements: Union[PlacementType, Tuple[PlacementType, ...]] = None,
              in_placements: Optional[Tuple[PlacementType, ...]] = None,
              in_grad_placements: Optional[Tuple[PlacementType, ...]] = None,
              device_mesh: Optional[DeviceMesh] = None, *, redistribute_inputs: bool = False,
              out_shapes: Optional[Tuple[Optional[Sequence[int]], ...]] = None,
              check_outputs: bool = False) -> Callable:
    """Returns a function that takes DTensors where `func` takes plain tensors: it calls `func` with
    this rank's parts, and returns the DTensors whose parts are what `func` returns.

    Arguments and results may be trees (`torch.utils._pytree`): entries are per leaf, None for leaves
    that are no tensors. Keyword arguments are passed on as they are. Without `func` it is a decorator.
    When no argument is a DTensor, the result is what `func` returns.

    Args:
        out_placements: how the results are placed: one list of placements for a single result, a tuple
            with one entry per leaf for several. None: none of them are tensors.
        in_placements: how the arguments must be placed; plain tensors pass unchecked.
        in_grad_placements: how the gradients that `func` computes for its arguments are placed.
        device_mesh: that of all DTensors; without it, that of the arguments.
        redistribute_inputs: place arguments as `in_placements` says where they are not.
        out_shapes: the global shapes of the results, one entry per leaf; an entry None has the ranks
            tell each other their sizes. Needed only where the size of a result depends on values or on
            the rank: otherwise uneven parts are found out. Ranks that took a result for different things
            raise `CommError` in their next collective.
        check_outputs: compare what the ranks return, for debugging: copies that differ, parts that do
            not fit together and trees that differ are an error on all ranks that names the ranks.

    Raises:
        AssertionError: for entries that do not fit the leaves.
        ValueError: for arguments that are placed otherwise than `in_placements` says, unless
            `redistribute_inputs` is set.
    """
    if func is None:
        return functools.partial(
            local_map, out_placements=out_placements, in_placements=in_placements,
            in_grad_placements=in_grad_placements, device_mesh=device_mesh,
            redistribute_inputs=redistribute_inputs, out_shapes=out_shapes, check_outputs=check_outputs)
    mapped = _C.LocalMapped(func, _out_entries(out_placements), in_placements, in_grad_placements,
                            device_mesh, redistribute_inputs, out_shapes, check_outputs)
    for name in functools.WRAPPER_ASSIGNMENTS:
        if hasattr(func, name):
            setattr(mapped, name, getattr(func, name))
    return mapped


def _out_entries(out_placements):
    """One entry for all leaves, or a tuple of entries."""
    if out_placements is None:
        return None
    is_tuple_of_entries = isinstance(out_placements, tuple) and any(
        entry is None or isinstance(entry, (list, tuple)) for entry in out_placements)
    return out_placements if is_tuple_of_entries else (out_placements,)


class strict_mode(guarding):
    """While entered, an operation of the calling rank that would have to redistribute a DTensor first
    raises instead, on all ranks before anything moves; `strict_mode(False)` allows it again inside."""

    def __init__(self, enabled: bool = True) -> None:
        super().__init__(lambda: _C.StrictGuard(enabled))


class implicit_replication(guarding):
    """While entered, plain tensors that operations of the calling rank mix with DTensors count as
    replicated: masks, positions and other constants that are equal on all ranks, which nobody checks.

    Without it they are an error, unless they have one element. Those that need a gradient stay one: make
    them DTensors.
    """

    def __init__(self) -> None:
        super().__init__(_C.ImplicitReplication)
