"""What every call about sharding begins with: its spec, its group, and ranks that agree."""

from contextlib import contextmanager
from typing import Any, Callable, Iterator, List, Tuple, Union

from . import _C, _world
from ._C import ChunkShardingSpec, EnumerableShardingSpec
from .device_mesh import Group
from .errors import InvalidArgument, WrongKind
from .functional_collectives import GroupLike, _resolve

ShardingSpec = Union[ChunkShardingSpec, EnumerableShardingSpec]
_SPECS = (ChunkShardingSpec, EnumerableShardingSpec)


def _check_spec(function: str, spec: Any, what: str) -> None:
    if not isinstance(spec, _SPECS):
        raise WrongKind(f"{function}: Expecting ShardingSpec but got: {type(spec).__name__} for {what}")


def _group_or_current(group: GroupLike) -> Group:
    if group is not None:
        return _resolve(group)
    _world._ensure()
    return _C.current_process_group()


@contextmanager
def _told(function: str, group: Group) -> Iterator[None]:
    """Has the other members hear of what is raised within it, where they call the same function."""
    try:
        yield
    except Exception as error:  # Whatever it is.
        try:
            _C.meet(function, group, str(error) or type(error).__name__, [])
        except InvalidArgument:
            pass
        raise


def _agreed(function: str, group: Group, check: Callable[[], Any],
            fields: Callable[[Any], List[Tuple[str, str]]]) -> Any:
    """Returns what `check` does, once all members of the group are here and their fields are the same.

    What it raises is raised by all of them: here as it is, elsewhere as an error that says by whom.
    """
    with _told(function, group):
        result = check()
    _C.meet(function, group, "", fields(result))
    return result
