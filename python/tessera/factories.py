"""New DTensors of a global shape. Every rank makes its own part; nothing is communicated.

Sizes are given as in torch: `zeros(4, 8, device_mesh=mesh)` or `zeros((4, 8), ...)`. No placements mean
Replicate along all mesh dims, no mesh that of the `with mesh:` around. Random values depend on neither
mesh nor placements nor the number of ranks; see `tessera.manual_seed`.
"""

from typing import Any, Callable, List, Optional, Sequence, Tuple, Union

import torch

from . import _C
from ._dtensor import DTensor, _mesh_for, _placements_for
from .device_mesh import DeviceMesh
from .errors import InvalidArgument
from .placement_types import Placement

__all__ = ["arange", "empty", "full", "manual_seed", "ones", "rand", "randn", "zeros"]


Number = Union[bool, int, float, complex]
Size = Union[int, Sequence[int]]


def _sizes(sizes: Tuple[Any, ...]) -> List[int]:
    if len(sizes) == 1 and not isinstance(sizes[0], int):
        return list(sizes[0])
    return list(sizes)


def _mesh_and_placements(
        name: str, mesh: Optional[DeviceMesh], placements: Optional[Sequence[Placement]],
        layout: torch.layout = torch.strided) -> Tuple[DeviceMesh, Tuple[Placement, ...]]:
    if layout is not torch.strided:
        raise InvalidArgument(f"{name}: layout value not supported! {layout} given; allowed is "
                              "torch.strided")
    mesh = _mesh_for(name, mesh)
    wanted = _placements_for(name, mesh, placements)
    if len(wanted) != mesh.ndim:
        raise InvalidArgument(f"{name}: mesh dimension does not match the length of placements: "
                              f"{len(wanted)} placement(s) given for {mesh!r}")
    return mesh, wanted


def _sized(name: str, factory: Callable[..., DTensor], text: str) -> Callable[..., DTensor]:
    def make(*size: Size, requires_grad: bool = False, dtype: Optional[torch.dtype] = None,
             layout: torch.layout = torch.strided, device_mesh: Optional[DeviceMesh] = None,
             placements: Optional[Sequence[Placement]] = None) -> DTensor:
        mesh, wanted = _mesh_and_placements(name, device_mesh, placements, layout)
        return factory(_sizes(size), mesh, wanted, dtype, requires_grad)

    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"Returns a DTensor of the global shape `size`: {text}."
    return make


zeros = _sized("zeros", _C.zeros, "zeros")
ones = _sized("ones", _C.ones, "ones")
empty = _sized("empty", _C.empty, "uninitialised memory")
rand = _sized("rand", _C.rand, "random numbers, evenly distributed in [0, 1)")
randn = _sized("randn", _C.randn, "normally distributed random numbers")


def full(size: Size, fill_value: Number, *, dtype: Optional[torch.dtype] = None,
         layout: torch.layout = torch.strided, requires_grad: bool = False,
         device_mesh: Optional[DeviceMesh] = None,
         placements: Optional[Sequence[Placement]] = None) -> DTensor:
    """Returns a DTensor of the global shape `size`: `fill_value` everywhere."""
    mesh, wanted = _mesh_and_placements("full", device_mesh, placements, layout)
    return _C.full(_sizes((size,)), fill_value, mesh, wanted, dtype, requires_grad)


def arange(start: Number, end: Optional[Number] = None, step: Number = 1, *, dtype: Optional[torch.dtype] = None,
           requires_grad: bool = False, device_mesh: Optional[DeviceMesh] = None,
           placements: Optional[Sequence[Placement]] = None) -> DTensor:
    """Returns `start`, `start + step`, ... up to, not including, `end`; `arange(end)` starts at 0."""
    if end is None:
        start, end = 0, start
    mesh, wanted = _mesh_and_placements("arange", device_mesh, placements)
    return _C.arange(start, end, step, mesh, wanted, dtype, requires_grad)


def manual_seed(seed: int) -> None:
    """Sets the seed of all random numbers in DTensors on the calling rank; all ranks must use the same.

    Every element is a function of the seed, of how many random operations came before, and of its
    global index: so it is the same on every mesh, for every placement and any number of ranks.
    """
    _C.manual_seed(seed)
