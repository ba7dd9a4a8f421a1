"""Which ranks there are: as threads of this process, or this process as one of many."""

import atexit
import os
import sys
import traceback
from typing import Any, Callable, List, Optional, TypeVar

import torch
import torch.distributed as dist

from . import _C
from .errors import InvalidArgument

__all__ = ["get_rank", "get_world_size", "init", "is_initialized", "run_ranks", "shutdown"]

Result = TypeVar("Result")

# The default group of torch.distributed that this process's world was made from, if it was.
_adopted: Optional[dist.ProcessGroup] = None


def run_ranks(ranks: int, fn: Callable[..., Result], *args: Any,
              timeout: Optional[float] = None) -> List[Result]:
    """Calls `fn(rank, *args)` on `ranks` threads of this process, each as one rank, and returns what
    they return, in the order of the ranks.

    Python runs one thread at a time, but computing and communicating do not hold its lock, so ranks
    overlap as far as their tensors are large.

    When a rank raises, the others' communication fails promptly, and its exception is raised here with
    a note that names the rank. Ranks that wait for something that cannot come fail at once.

    Args:
        timeout: how long a rank waits for the others in one operation, in seconds; 60 unless given.
    """
    results, failed, error = _C.run_ranks(ranks, lambda rank: fn(rank, *args), timeout)
    if error is None:
        return results
    if hasattr(error, "add_note"):
        error.add_note(f"(raised on rank {failed} of {ranks} in tessera.run_ranks)")
    raise error


def is_initialized() -> bool:
    """True inside of `run_ranks`, and in a process that is a rank."""
    return _C.is_running()


def get_rank() -> int:
    """The calling rank's number."""
    _ensure()
    return _C.world_rank()


def get_world_size() -> int:
    """How many ranks there are."""
    _ensure()
    return _C.world_size()


def init(engine: Optional[str] = None, *, timeout: Optional[float] = None) -> None:
    """Makes this process a rank of whatever it was started by. `init_device_mesh` does so where nobody
    has; what is a rank already stays so.

    Args:
        engine: how ranks communicate. Without it: over the default group of torch.distributed where that
            is initialized or torchrun has started the process; over MPI under mpirun; and alone
            without a launcher. `"torch"` insists on torch.distributed; `"gloo"` and `"mpi"` on the
            engines of tessera.
        timeout: how long a rank waits for the others in one operation, in seconds; 60 unless given.
    """
    if _C.is_running():
        _check_group()
        return
    if engine is None:
        engine = "torch" if _is_torch_job() else None
    if engine == "torch":
        _adopt(timeout)
    else:
        _C.start_world(engine, timeout)
    _watch_exceptions()


def shutdown() -> None:
    """Takes back `init`; done by itself when the process ends. Tensors and meshes made since then must
    not be used any more. With MPI it can be done only once."""
    global _adopted
    if _C.is_process_world():
        _C.leave_world()
    _adopted = None


def _is_torch_job() -> bool:
    if not dist.is_available():
        return False
    return dist.is_initialized() or all(
        name in os.environ for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"))


def _check_group() -> None:
    """Refuses a group of torch.distributed that was destroyed since it was adopted."""
    if _adopted is None or not _C.is_process_world():
        return
    if not dist.is_initialized() or dist.group.WORLD is not _adopted:
        raise InvalidArgument("the process group that tessera uses was destroyed; call tessera.shutdown() "
                              "before torch.distributed.destroy_process_group(), and make meshes anew")


def _adopt(timeout: Optional[float]) -> None:
    global _adopted
    if not dist.is_initialized():
        dist.init_process_group("gloo" if not torch.cuda.is_available() else None)
    group = dist.group.WORLD

    def make_group(ranks: List[int]) -> dist.ProcessGroup:
        # Only the members call it, so nobody else must be waited for.
        return dist.new_group(ranks, use_local_synchronization=True,
                              sort_ranks=ranks == sorted(ranks))

    _C.adopt_world(group, make_group, timeout)
    _adopted = group


def _ensure() -> None:
    """Makes sure that the calling thread is a rank."""
    if _C.is_running():
        _check_group()
    else:
        init()


def _watch_exceptions() -> None:
    """Has the other ranks learn why this process ends, when an exception ends it."""
    previous = sys.excepthook
    if getattr(previous, "_is_tessera", False):
        return

    def hook(kind, value, trace):
        previous(kind, value, trace)
        _C.fail_world("".join(traceback.format_exception_only(kind, value)).strip())

    setattr(hook, "_is_tessera", True)
    sys.excepthook = hook


atexit.register(shutdown)
