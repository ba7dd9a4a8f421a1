"""Modules that work on batches which are spread over a mesh."""

from typing import Iterable, Optional, Union

import torch
from torch import nn

from .. import _C
from .._dtensor import _mesh_for
from .._guard import guarding
from ..device_mesh import DeviceMesh

__all__ = ["clip_grad_norm_", "data_parallel", "fully_shard", "no_sync"]


def data_parallel(module: nn.Module, device_mesh: Optional[DeviceMesh] = None, *,
                  bucket_bytes: int = 25_000_000) -> nn.Module:
    """Makes a module work on batches that are spread over a mesh, with a copy of it on every rank; in
    place, and returns it.

        data_parallel(model, mesh)
        x = distribute_tensor(batch, mesh, [Shard(0)], src_data_rank=None)
        loss_of(model(x)).backward()   # The loss of the whole batch, on every rank.

    Parameters and buffers that are plain become DTensors, replicated along all mesh dims, with the
    values of the mesh's first rank; they stay the same objects, so an optimizer may be made before.
    DTensors stay as they are. Gradients are reduced in buckets during the backward pass. The batch need
    not divide evenly.

    Args:
        device_mesh: without it, that of the `with mesh:` around.
        bucket_bytes: gradients that are ready are collected until they have so many bytes.
    """
    _C.data_parallel(module, _mesh_for("data_parallel", device_mesh), bucket_bytes)
    return module


def fully_shard(module: nn.Module, device_mesh: Optional[DeviceMesh] = None, *,
                mesh_dim: Optional[str] = None, min_elements: int = 0,
                bucket_bytes: Optional[int] = None) -> nn.Module:
    """Makes a module work on batches that are spread over a mesh, with only a part of each parameter on
    every rank; in place, and returns it.

    A parameter is cut along its first dim over `mesh_dim`, or along another one where that is cut
    already. An operation that uses it gathers it, computes and drops the whole again; the backward pass
    does the same, and gradients are summed and cut like the parameters, in buckets. Batches are cut
    over the same mesh dim.

    Args:
        device_mesh: without it, that of the `with mesh:` around.
        mesh_dim: the name of the mesh dim; may be left out of a mesh of one dim.
        min_elements: parameters of fewer elements are replicated.
        bucket_bytes: as in `data_parallel`; the bytes of the largest parameter unless given.
    """
    mesh = _mesh_for("fully_shard", device_mesh)
    _C.fully_shard(module, mesh, mesh_dim or "", min_elements, bucket_bytes)
    return module


class no_sync(guarding):
    """While entered, backward passes of the calling rank leave the gradients of `data_parallel` and
    `fully_shard` as they come: contributions, which add up. The first pass after it reduces the sum."""

    def __init__(self) -> None:
        super().__init__(_C.NoGradientSync)


def clip_grad_norm_(parameters: Union[torch.Tensor, Iterable[torch.Tensor]], max_norm: float,
                    norm_type: float = 2.0, error_if_nonfinite: bool = False,
                    foreach: Optional[bool] = None) -> torch.Tensor:
    """Scales all gradients so that their norm, as if they were one vector, is at most `max_norm`, in
    place, and returns the norm that they had: a plain tensor, the same on all ranks.

    As `torch.nn.utils.clip_grad_norm_`, which works on DTensors too, but only if they are all on one
    mesh. Here parameters may be on different meshes, and some of them plain: these count as equal on all
    ranks. Every element counts once, however it is placed. `foreach` changes nothing.
    """
    tensors = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
    return torch.tensor(_C.clip_grad_norm(tensors, max_norm, norm_type, error_if_nonfinite))
