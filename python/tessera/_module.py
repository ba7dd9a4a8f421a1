"""`distribute_module`: a module whose parameters become DTensors."""

import inspect
import warnings
from typing import Callable, Optional, cast

import torch

from . import _C
from ._dtensor import _mesh_for, distribute_tensor
from .device_mesh import DeviceMesh
from .errors import InvalidArgument
from .placement_types import Replicate

__all__ = ["distribute_module"]


def distribute_module(module: torch.nn.Module, device_mesh: Optional[DeviceMesh] = None,
                      partition_fn: Optional[Callable] = None, input_fn: Optional[Callable] = None,
                      output_fn: Optional[Callable] = None) -> torch.nn.Module:
    """Makes the parameters and buffers of `module` DTensors, in place, and returns it.

    Args:
        device_mesh: without it, that of the `with mesh:` around.
        partition_fn: called as `partition_fn(name, submodule, device_mesh)` for every submodule, the
            module itself included; it may replace parameters by DTensors. What is plain afterwards is
            replicated.
        input_fn: called as `input_fn(module, inputs, device_mesh)` before every forward; what it
            returns takes the place of the inputs.
        output_fn: called as `output_fn(module, outputs, device_mesh)` after every forward.

    Raises:
        RuntimeError: for a module that this was called with before.
    """
    if getattr(module, "_distribute_module_applied", False):
        raise InvalidArgument("distribute_module should only be called once on a module, but it has "
                              "already been called on this one")
    mesh = _mesh_for("distribute_module", device_mesh)
    pre_hook = _hook("input_fn", input_fn)
    hook = _hook("output_fn", output_fn)
    for name, submodule in module.named_modules():
        if partition_fn is not None:
            partition_fn(name, submodule, mesh)
        _replicate(submodule, mesh)
    if pre_hook is not None:
        module.register_forward_pre_hook(lambda owner, inputs: pre_hook(owner, inputs, mesh))
    if hook is not None:
        module.register_forward_hook(lambda owner, _, outputs: hook(owner, outputs, mesh))
    setattr(module, "_distribute_module_applied", True)
    return module


def _replicate(module: torch.nn.Module, mesh: DeviceMesh) -> None:
    whole = [Replicate()] * mesh.ndim
    for name, parameter in list(module._parameters.items()):
        if parameter is not None and not _C.is_dtensor(parameter):
            module._parameters[name] = cast(torch.nn.Parameter, distribute_tensor(parameter, mesh, whole))
    for name, buffer in module._buffers.items():
        if buffer is not None and not _C.is_dtensor(buffer):
            module._buffers[name] = distribute_tensor(buffer, mesh, whole)


def _hook(name: str, function: Optional[Callable]) -> Optional[Callable]:
    """The function with three arguments, or None."""
    if function is None:
        return None
    count = len(inspect.signature(function).parameters)
    if count == 3:
        return function
    if count == 2:
        warnings.warn(f"{name} with two arguments is deprecated; take (module, values, device_mesh)",
                      FutureWarning, stacklevel=3)
        return lambda _module, values, mesh: function(values, mesh)
    raise InvalidArgument(f"{name} should take in 3 arguments, but got {count} arguments!")
