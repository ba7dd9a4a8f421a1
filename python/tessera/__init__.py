"""Tessera: distributed tensors on a C++ core, under the names of `torch.distributed.tensor`."""

# torch loads the libraries that the extension links.
import torch as _torch

if _torch.__version__.split("+")[0] != "2.13.0":
    raise ImportError(f"tessera is built for torch 2.13.0, but torch {_torch.__version__} is installed; "
                      "install torch==2.13.0")

from . import debug, errors, experimental, functional_collectives, parallel, sharded
from ._dtensor import DTensor, distribute_tensor
from ._module import distribute_module
from ._world import get_rank, get_world_size, init, is_initialized, run_ranks, shutdown
from .device_mesh import DeviceMesh, Group, init_device_mesh
from .errors import CommError, Error, InternalError, InvalidArgument
from .factories import arange, empty, full, manual_seed, ones, rand, randn, zeros
from .placement_types import Partial, Placement, Replicate, Shard

__version__ = "0.1.0"

__all__ = [
    "CommError", "DTensor", "DeviceMesh", "Error", "Group", "InternalError", "InvalidArgument",
    "Partial", "Placement", "Replicate", "Shard", "arange", "debug", "distribute_module",
    "distribute_tensor", "empty", "errors", "experimental", "full", "functional_collectives", "get_rank",
    "get_world_size", "init", "init_device_mesh", "is_initialized", "manual_seed", "ones", "parallel",
    "rand", "randn", "run_ranks", "sharded", "shutdown", "zeros",
]
