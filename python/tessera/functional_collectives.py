"""Functional collectives: they return new tensors and leave their arguments as they are.

Names and arguments are those of `torch.distributed._functional_collectives`. `group` is a `DeviceMesh` (all
its ranks), a pair `(mesh, dim)`, a `Group`, or a list of global ranks. All members must call the same
collectives in the same order. Results are on their way until they are first used, or `x.wait()`.
All differentiate, with the loss being the sum of all members' losses.
"""

from typing import List, Optional, Sequence, Tuple, Union

import torch

from . import _C, _world
from .device_mesh import DeviceMesh, Group, _own_group
from .errors import InvalidArgument

__all__ = [
    "all_gather_into_tensor_coalesced", "all_gather_single", "all_gather_single_autograd",
    "all_gather_single_coalesced", "all_gather_tensor", "all_gather_tensor_autograd", "all_reduce",
    "all_reduce_coalesced", "all_to_all_single", "all_to_all_single_autograd", "barrier", "broadcast",
    "gather", "permute_tensor", "recv", "reduce_scatter_single", "reduce_scatter_single_autograd",
    "reduce_scatter_single_coalesced", "reduce_scatter_tensor", "reduce_scatter_tensor_autograd",
    "reduce_scatter_tensor_coalesced", "scatter", "send", "wait_tensor",
]

GroupLike = Union[DeviceMesh, Tuple[DeviceMesh, int], Group, Sequence[int], None]


def _resolve(group: GroupLike) -> Group:
    if isinstance(group, Group):
        return group
    if isinstance(group, DeviceMesh):
        return group._group()
    if group is None:
        _world._ensure()
        return _C.world_group()
    if isinstance(group, tuple) and len(group) == 2 and isinstance(group[0], DeviceMesh):
        return group[0].get_group(group[1])
    if isinstance(group, (list, tuple)) and all(isinstance(rank, int) for rank in group):
        _world._ensure()
        return _C.group_of(list(group))
    if not isinstance(group, torch.distributed.ProcessGroup):
        raise InvalidArgument(f"{group!r} given as group; allowed are a DeviceMesh, (mesh, dim), a Group, "
                              "a list of ranks and a process group of torch.distributed")
    return _own_group(group)


def wait_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """Waits until the values are there; the same as `tensor.wait()`."""
    return _C.wait(tensor)


def broadcast(self: torch.Tensor, src: int, group: GroupLike, tag: str = "") -> torch.Tensor:
    """Returns the tensor of member `src`."""
    return _C.broadcast(self, src, _resolve(group), True)


def all_reduce(self: torch.Tensor, reduceOp: str, group: GroupLike, tag: str = "") -> torch.Tensor:
    """Returns the reduction of all members' tensors: sum, avg, min, max, product, band, bor or bxor."""
    return _C.all_reduce(self, reduceOp, _resolve(group), True)


def all_gather_tensor(self: torch.Tensor, gather_dim: int, group: GroupLike,
                      tag: str = "") -> torch.Tensor:
    """Returns all members' tensors concatenated along `gather_dim`; their sizes there may differ."""
    return _C.all_gather(self, gather_dim, _resolve(group), True, [])


def reduce_scatter_tensor(self: torch.Tensor, reduceOp: str, scatter_dim: int, group: GroupLike,
                          tag: str = "") -> torch.Tensor:
    """Returns this member's piece along `scatter_dim` of the reduction of all members' tensors."""
    group = _resolve(group)
    size = self.size(scatter_dim)
    if size % group.size() != 0:
        raise InvalidArgument(f"reduce_scatter_tensor: input dimension {scatter_dim} ({size}) must be a "
                              f"multiple of group_size {group.size()}")
    return _C.reduce_scatter(self, scatter_dim, reduceOp, group, True, [])


def all_reduce_coalesced(self: List[torch.Tensor], reduceOp: str, group: GroupLike,
                         tag: str = "") -> List[torch.Tensor]:
    """`all_reduce` of several tensors in one message per dtype."""
    return _C.all_reduce_coalesced(self, reduceOp, _resolve(group), True)


def all_gather_into_tensor_coalesced(self: List[torch.Tensor], group: GroupLike,
                                     tag: str = "") -> List[torch.Tensor]:
    """`all_gather_tensor` along dim 0 of several tensors in one message per dtype."""
    return _C.all_gather_coalesced(self, 0, _resolve(group), True)


def reduce_scatter_tensor_coalesced(inputs: List[torch.Tensor], reduceOp: str,
                                    scatter_dim: Sequence[int], group: GroupLike,
                                    tag: str = "") -> List[torch.Tensor]:
    """`reduce_scatter_tensor` of several tensors in one message per dtype."""
    if len(set(scatter_dim)) > 1:
        raise InvalidArgument(f"reduce_scatter_tensor_coalesced: scatter dims {list(scatter_dim)} given; "
                              "they must be the same for all tensors")
    dim = scatter_dim[0] if scatter_dim else 0
    return _C.reduce_scatter_coalesced(inputs, dim, reduceOp, _resolve(group), True)


def all_to_all_single(self: torch.Tensor, output_split_sizes: Optional[List[int]],
                      input_split_sizes: Optional[List[int]], group: GroupLike,
                      tag: str = "") -> torch.Tensor:
    """Sends piece i along dim 0 to member i, and returns the pieces received. Without
    `output_split_sizes` the members tell each other; without both, the tensor is cut evenly."""
    return _C.all_to_all(self, output_split_sizes or [], input_split_sizes or [], _resolve(group),
                         True)


def permute_tensor(self: torch.Tensor, src_dst: List[int], group: GroupLike,
                   tag: str = "") -> torch.Tensor:
    """Sends the tensor of member i to member `src_dst[i]`."""
    pairs = [(source, destination) for source, destination in enumerate(src_dst) if destination >= 0]
    return _C.permute(self, pairs, _resolve(group), True)


def scatter(self: torch.Tensor, scatter_dim: int, src: int, group: GroupLike) -> torch.Tensor:
    """Returns this member's piece along `scatter_dim` of member `src`'s tensor."""
    return _C.scatter(self, scatter_dim, src, _resolve(group))


def gather(self: torch.Tensor, gather_dim: int, dst: int, group: GroupLike) -> torch.Tensor:
    """Returns on member `dst` all members' tensors concatenated, elsewhere an empty tensor."""
    return _C.gather(self, gather_dim, dst, _resolve(group))


def send(self: torch.Tensor, dst: int, group: GroupLike, tag: int = 0) -> None:
    """Sends the tensor to member `dst`, who must call `recv`."""
    _C.send(self, dst, _resolve(group), tag)


def recv(like: torch.Tensor, src: int, group: GroupLike, tag: int = 0) -> torch.Tensor:
    """Returns what member `src` sends, a tensor of the shape and dtype of `like`."""
    return _C.recv(like, src, _resolve(group), tag)


def barrier(group: GroupLike = None) -> None:
    """Returns when all members have called it."""
    _C.barrier(_resolve(group))


# They differentiate anyway, and PyTorch has each under several names.
all_gather_single = all_gather_tensor
all_gather_single_autograd = all_gather_tensor
all_gather_tensor_autograd = all_gather_tensor
all_gather_single_coalesced = all_gather_into_tensor_coalesced
reduce_scatter_single = reduce_scatter_tensor
reduce_scatter_single_autograd = reduce_scatter_tensor
reduce_scatter_tensor_autograd = reduce_scatter_tensor
reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced
all_to_all_single_autograd = all_to_all_single
