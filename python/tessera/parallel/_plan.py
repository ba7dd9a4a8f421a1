"""`parallelize_module`: styles applied to the submodules that a plan names."""

import warnings
from fnmatch import fnmatch
from typing import Dict, Iterator, List, Optional, Union

from torch import nn

from .._dtensor import _mesh_for
from ..device_mesh import DeviceMesh, _dim_of
from ..errors import InvalidArgument
from ._styles import ParallelStyle

__all__ = ["parallelize_module"]


def parallelize_module(module: nn.Module, device_mesh: Optional[DeviceMesh] = None,
                       parallelize_plan: Union[ParallelStyle, Dict[str, ParallelStyle], None] = None,
                       *, src_data_rank: Optional[int] = 0,
                       mesh_dim: Union[int, str, None] = None) -> nn.Module:
    """Applies a style to a module, or a plan of styles to its submodules, in place, and returns it.

    Args:
        device_mesh: a mesh of one dim, such as `mesh["tp"]`; without it, that of the `with mesh:` around.
        parallelize_plan: a style, or a dict from the names of submodules to styles. Names may have
            dots and the wildcards of `fnmatch`: `"layers.*.attention"`. One that matches nothing is
            warned about.
        src_data_rank: whose values the parameters take; None when all ranks have equal values.
        mesh_dim: the dim of a mesh of several dims along which the styles work. Along the others
            parameters are replicated, and activations, which must be DTensors then, stay as they are: so
            the batch can be cut over another dim, and `data_parallel` and `fully_shard` can follow.
    """
    mesh = _mesh_for("parallelize_module", device_mesh)
    if parallelize_plan is None:
        warnings.warn("No parallelize_plan is provided, so this parallelize_module call will do nothing.",
                      stacklevel=2)
        return module
    if mesh_dim is None and mesh.ndim != 1:
        raise InvalidArgument(f"parallelize_module: {mesh!r} given, which has {mesh.ndim} dims; pass the one "
                              "along which to work as mesh_dim, or a mesh of one dim such as mesh['tp']")
    dim = _dim_of(mesh, mesh_dim, "parallelize_module")
    _apply(module, mesh, dim, parallelize_plan, src_data_rank)
    return module


def _apply(module, mesh, dim, plan, src_data_rank) -> None:
    if isinstance(plan, ParallelStyle):
        plan.src_data_rank = src_data_rank
        plan.mesh_dim = dim
        plan._apply(module, mesh)
        return
    if not isinstance(plan, dict):
        raise TypeError("Expect Union[ParallelStyle, Dict[str, ParallelStyle]] for parallelize_plan, "
                        f"{type(plan)} found!")
    for path, style in plan.items():
        matches = list(_matching(module, path.split("."))) if path else [module]
        if not matches:
            warnings.warn(f"Parallelize plan key '{path}' could not be resolved: no submodule matching "
                          f"it in module {type(module).__name__}, skipping this plan entry.",
                          stacklevel=3)
        for submodule in matches:
            _apply(submodule, mesh, dim, style, src_data_rank)


def _matching(module: nn.Module, tokens: List[str]) -> Iterator[nn.Module]:
    for name, child in module.named_children():
        if fnmatch(name, tokens[0]):
            if len(tokens) == 1:
                yield child
            else:
                yield from _matching(child, tokens[1:])
