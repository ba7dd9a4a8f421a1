"""Sharded tensors and sharding plans, under the names of `torch.distributed._shard`.

A sharded tensor is a list of shards, any boxes on any ranks; a parameter that a plan shards is a DTensor.
Placements name global ranks (`"rank:1/cpu"`); `src_rank` and `dst` are places in the group. A
`process_group` may be whatever the functional collectives take; without one it is that of the
`load_with_process_group` around, or the world. All members of the group must call what makes, moves or
gathers a tensor; a mistake of one of them is an error on all, before anything has moved.
"""

from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Iterator, List, Optional, Sequence, Tuple

import torch

from . import _C
from ._C import (ChunkShardingSpec, EnumerableShardingSpec, RankDevice, ShardedTensorMetadata,
                 ShardMetadata, TensorProperties)
from ._shard_module import shard_module, shard_parameter
from ._sharding_call import ShardingSpec, _check_spec, _group_or_current, _told
from ._sharding_plan import BudgetPlanner, Sharder, ShardingPlan, ShardingPlanner
from .device_mesh import DeviceMesh, Group
from .errors import InvalidArgument, NotSupported, WrongKind
from .functional_collectives import GroupLike
from .placement_types import Placement

__all__ = [
    "BudgetPlanner", "ChunkShardingSpec", "EnumerableShardingSpec", "RankDevice", "Shard",
    "ShardMetadata", "ShardedTensor", "ShardedTensorMetadata", "Sharder", "ShardingPlan",
    "ShardingPlanner", "ShardingSpec", "TensorProperties", "current_process_group", "empty", "full",
    "init_from_local_shards", "load_sharded_tensor", "load_with_process_group", "ones", "rand", "randn",
    "shard_module", "shard_parameter", "shard_tensor", "zeros",
]


@dataclass
class Shard:
    """One shard of this rank: its values, and which box of the whole they are."""

    tensor: torch.Tensor
    metadata: ShardMetadata

    def __post_init__(self) -> None:
        if list(self.tensor.shape) != self.metadata.shard_sizes:
            raise InvalidArgument("Shard tensor size does not match with metadata.shard_lengths! Found "
                                  f"shard tensor size: {list(self.tensor.shape)}, metadata.shard_lengths: "
                                  f"{self.metadata.shard_sizes}")
        if self.tensor.device.type != self.metadata.placement.device().type:
            raise InvalidArgument("Local shard tensor device does not match with local Shard's placement! "
                                  f"Found local shard tensor device: {self.tensor.device}, local shard "
                                  f"metadata placement: {self.metadata.placement}")

    @classmethod
    def from_tensor_and_offsets(cls, tensor: torch.Tensor, shard_offsets: Sequence[int],
                                rank: int) -> "Shard":
        """The shard that begins at `shard_offsets` and lives where `tensor` is."""
        placement = f"rank:{rank}/{tensor.device}"
        return cls(tensor, ShardMetadata(list(shard_offsets), list(tensor.shape), placement))


class ShardedTensor:
    """A tensor held as a list of shards. Made by the functions of this module.

    It is no `torch.Tensor`: for operations there is `to_dtensor()`, which shares its memory.
    """

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    def sharding_spec(self) -> ShardingSpec:
        """How it is cut."""
        return self._handle.sharding_spec()

    def metadata(self) -> ShardedTensorMetadata:
        """The shards of all ranks, in the order of the spec, without their values."""
        return self._handle.metadata()

    def local_shards(self) -> List[Shard]:
        """This rank's shards, in the order of the spec; none on ranks that no placement names."""
        return [Shard(tensor, metadata) for tensor, metadata in self._handle.local_shards()]

    def local_tensor(self) -> torch.Tensor:
        """The only shard of this rank.

        Raises:
            NotImplementedError: unless it has exactly one.
        """
        try:
            return self._handle.local_tensor()
        except InvalidArgument as error:
            raise NotSupported(str(error)) from None

    def gather(self, dst: int = 0, out: Optional[torch.Tensor] = None) -> Optional[torch.Tensor]:
        """Returns the whole tensor on member `dst`: `out` if that is given, otherwise a new one; None
        elsewhere. `dst` receives what it does not hold.

        Raises:
            ValueError: on all members when `out` is given elsewhere or does not fit.
        """
        return self._handle.gather(dst, out)

    def reshard(self, resharding_spec: ShardingSpec) -> "ShardedTensor":
        """Cuts and places the tensor otherwise, in place, and returns it. Every rank receives exactly what it
        needs and does not hold, whatever the two specs are."""
        with _told("reshard", self.process_group):
            _check_spec("reshard", resharding_spec, "resharding_spec")
        self._handle = self._handle.reshard(resharding_spec)
        return self

    def to_dtensor(self, device_mesh: Optional[DeviceMesh] = None,
                   placements: Optional[Sequence[Placement]] = None) -> torch.Tensor:
        """Returns it as a DTensor: without arguments one that shares memory with the shards, otherwise one
        that is placed so, by a move without history.

        Raises:
            ValueError: when there is no DTensor with the same shards.
        """
        if device_mesh is None and placements is None:
            return self._handle.to_dtensor()
        if device_mesh is None or placements is None:
            raise InvalidArgument("to_dtensor: give both device_mesh and placements, or none of them")
        return self._handle.move_to_dtensor(device_mesh, placements)

    @staticmethod
    def from_dtensor(tensor: torch.Tensor, sharding_spec: Optional[ShardingSpec] = None,
                     process_group: GroupLike = None) -> "ShardedTensor":
        """The shards of a DTensor: without a spec its own, which share its memory; otherwise others, by a
        move without history."""
        return ShardedTensor(
            _C.sharded_from_dtensor(tensor, sharding_spec, _group_or_current(process_group)))

    @property
    def process_group(self) -> Group:
        """The group whose ranks hold it."""
        return self._handle.group()

    @property
    def dtype(self) -> torch.dtype:
        """Of the elements."""
        return self.metadata().tensor_properties.dtype

    @property
    def layout(self) -> torch.layout:
        """torch.strided."""
        return self.metadata().tensor_properties.layout

    @property
    def requires_grad(self) -> bool:
        """Whether the shards do."""
        return self.metadata().tensor_properties.requires_grad

    @property
    def shape(self) -> torch.Size:
        """The global size."""
        return self.metadata().size

    def size(self, dim: Optional[int] = None) -> Any:
        """The global size, whole or of one dim."""
        return self.shape if dim is None else self.shape[dim]

    def dim(self) -> int:
        """The number of dims."""
        return len(self.shape)

    def numel(self) -> int:
        """The number of elements of the whole."""
        return self.shape.numel()

    def is_pinned(self) -> bool:
        """Whether the shards are in pinned memory."""
        return self.metadata().tensor_properties.pin_memory

    def __repr__(self) -> str:
        return repr(self._handle)

    def __reduce__(self) -> Tuple[Any, ...]:
        # Every rank writes and reads its own shards.
        return load_sharded_tensor, (self._handle.to_bytes(),)


def load_sharded_tensor(data: bytes, process_group: GroupLike = None) -> ShardedTensor:
    """What unpickling calls: the tensor that this rank's bytes are of, in a group with the same ranks."""
    return ShardedTensor(_C.load_sharded_tensor(data, _group_or_current(process_group)))


def shard_tensor(tensor: torch.Tensor, sharding_spec: ShardingSpec, src_rank: int = 0,
                 process_group: GroupLike = None) -> ShardedTensor:
    """Returns member `src_rank`'s tensor as shards. The values of the others do not matter, but shape, dtype
    and `requires_grad` must be the same everywhere.

    Raises:
        ValueError: on all members for a tensor that is not contiguous, a spec that does not fit, and when
            src_rank, spec, shape or properties differ.
    """
    group = _group_or_current(process_group)
    with _told("shard_tensor", group):
        _check_spec("shard_tensor", sharding_spec, "sharding_spec")
    return ShardedTensor(_C.shard_tensor(tensor, sharding_spec, src_rank, group))


def init_from_local_shards(local_shards: Sequence[Shard], *global_size: Any,
                           process_group: GroupLike = None) -> ShardedTensor:
    """Returns the tensor of `global_size` whose shards the members have already; shares their memory.

    Raises:
        ValueError: on all members when sizes or properties do not match from different ranks, when shards
            overlap or leave gaps, and when there are none at all.
    """
    group = _group_or_current(process_group)
    with _told("init_from_local_shards", group):
        shards = [(shard.tensor, shard.metadata) for shard in local_shards]
        size = _flat_size(global_size)
    return ShardedTensor(_C.init_from_local_shards(shards, size, group))


def _flat_size(size: Sequence[Any]) -> List[int]:
    flat = list(size[0]) if len(size) == 1 and isinstance(size[0], (list, tuple)) else list(size)
    if not all(isinstance(length, int) for length in flat):
        raise WrongKind(f"size has to be a sequence of ints, found: {flat}")
    return flat


def _checked_sizes(name: str, spec: Any, size: Sequence[Any], layout: torch.layout) -> List[int]:
    _check_spec(name, spec, "sharding_spec")
    if layout is not torch.strided:
        raise InvalidArgument(f"{name}: Only torch.strided layout is currently supported, but found "
                              f"{layout}")
    return _flat_size(size)


def _sized(name: str, factory: Any, text: str) -> Any:
    def make(sharding_spec: ShardingSpec, *size: Any, dtype: Optional[torch.dtype] = None,
             layout: torch.layout = torch.strided, requires_grad: bool = False,
             process_group: GroupLike = None) -> ShardedTensor:
        group = _group_or_current(process_group)
        with _told(name, group):
            sizes = _checked_sizes(name, sharding_spec, size, layout)
        return ShardedTensor(factory(sharding_spec, sizes, dtype, requires_grad, group))

    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"Returns a sharded tensor of the global shape `size`: {text}."
    return make


zeros = _sized("zeros", _C.sharded_zeros, "zeros")
ones = _sized("ones", _C.sharded_ones, "ones")
empty = _sized("empty", _C.sharded_empty, "uninitialised memory")
rand = _sized("rand", _C.sharded_rand, "random numbers in [0, 1), the same for every spec")
randn = _sized("randn", _C.sharded_randn,
               "normally distributed random numbers, the same for every spec")


def full(sharding_spec: ShardingSpec, size: Any, fill_value: Any, *,
         dtype: Optional[torch.dtype] = None, layout: torch.layout = torch.strided,
         requires_grad: bool = False, process_group: GroupLike = None) -> ShardedTensor:
    """Returns a sharded tensor of the global shape `size`: `fill_value` everywhere."""
    group = _group_or_current(process_group)
    with _told("full", group):
        sizes = _checked_sizes("full", sharding_spec, (size,), layout)
    return ShardedTensor(_C.sharded_full(sharding_spec, sizes, fill_value, dtype, requires_grad, group))


@contextmanager
def load_with_process_group(process_group: GroupLike) -> Iterator[Group]:
    """Within it, the functions of this module use that group on the calling rank where none is given.

    Raises:
        RuntimeError: within another one.
    """
    group = _group_or_current(process_group)
    scope = _C.ProcessGroupScope(group)
    scope.enter()
    try:
        yield group
    finally:
        scope.exit()


def current_process_group() -> Group:
    """The group of the `load_with_process_group` around, that of the world without one."""
    return _group_or_current(None)


# The names that PyTorch has.
_shard_tensor = shard_tensor
_get_current_process_group = current_process_group
