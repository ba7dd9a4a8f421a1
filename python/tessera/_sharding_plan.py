"""How a module is to be sharded, and who decides that."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Dict, List, Optional, Union

from torch import nn

from . import _C
from ._C import ChunkShardingSpec
from ._sharding_call import ShardingSpec, _group_or_current
from .errors import InvalidArgument
from .functional_collectives import GroupLike


class Sharder(ABC):
    """Shards a whole module in its own way, by making another one that takes its place."""

    @abstractmethod
    def shard(self, module: nn.Module) -> nn.Module:
        """Returns the module that takes the place of `module`, which may be itself. Called by all
        members of the group."""

    def check(self, module: nn.Module) -> None:
        """Raises when it cannot shard this module. Called before anything is changed; must change
        nothing itself."""


@dataclass
class ShardingPlan:
    """How a module is sharded.

    Names are those of `named_parameters` and `named_modules`, and may be patterns: `*` stands for any
    characters within one part of a path, `**` for any parts. A name without `*`, `?` and `[` goes before
    patterns that stand for it too.

    Args:
        plan: what becomes of parameters and buffers (a spec), and of modules (a Sharder).
        output_plan: how the DTensors that modules return are placed; `""` is the module itself.
        return_local_tensor: modules that return this rank's part, a plain tensor; a dim that is cut into
            chunks of one element is taken away.
    """

    plan: Dict[str, Union[ShardingSpec, Sharder]]
    output_plan: Optional[Dict[str, ShardingSpec]] = None
    return_local_tensor: Optional[List[str]] = None


class ShardingPlanner(ABC):
    """Makes plans."""

    @abstractmethod
    def build_plan(self, module: nn.Module) -> ShardingPlan:
        """Returns a plan for the module, the same on all ranks."""


class BudgetPlanner(ShardingPlanner):
    """Shards as few parameters as it takes to stay within a memory budget on every rank, those that save
    most first, each evenly over all ranks of the group.

    Args:
        bytes_per_rank: the most bytes that a rank may hold of parameters and buffers.
        copies: how many times the bytes of a parameter are needed: 2 with its gradient, 4 with the state of
            AdamW as well.
    """

    def __init__(self, bytes_per_rank: int, copies: int = 1, process_group: GroupLike = None) -> None:
        if bytes_per_rank < 0:
            raise InvalidArgument(f"BudgetPlanner: a budget of {bytes_per_rank} bytes given; it must be "
                                  ">= 0")
        if copies < 1:
            raise InvalidArgument(f"BudgetPlanner: {copies} copies given; a parameter is held at least "
                                  "once")
        self._bytes_per_rank = bytes_per_rank
        self._copies = copies
        self._ranks = _group_or_current(process_group).ranks

    def build_plan(self, module: nn.Module) -> ShardingPlan:
        paths: Dict[int, List[str]] = {}
        weights: Dict[int, nn.Parameter] = {}
        for path, parameter in module.named_parameters(remove_duplicate=False):
            paths.setdefault(id(parameter), []).append(path)
            weights[id(parameter)] = parameter
        sizes = [(list(weight.shape), weight.element_size()) for weight in weights.values()]
        others = sum(buffer.numel() * buffer.element_size() for buffer in module.buffers())
        dims = _C.budget_dims(sizes, others, len(self._ranks), self._bytes_per_rank, self._copies)
        placements = [f"rank:{rank}/cpu" for rank in self._ranks]
        return ShardingPlan({path: ChunkShardingSpec(dim, placements)
                             for key, dim in zip(weights, dims) if dim >= 0 for path in paths[key]})
