"""Placements: how one mesh dim holds a tensor."""

from abc import ABC

from ._C import Partial, Replicate, Shard, _StridedShard

__all__ = ["Partial", "Placement", "Replicate", "Shard"]


class Placement(ABC):
    """What `Shard`, `Replicate` and `Partial` are."""


for _kind in (Shard, Replicate, Partial, _StridedShard):
    Placement.register(_kind)
    _kind.__module__ = "tessera"
