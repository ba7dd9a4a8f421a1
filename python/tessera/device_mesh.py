"""Meshes of ranks, as in `torch.distributed.device_mesh`."""

import math
import pickle
import threading
from typing import TYPE_CHECKING, Any, List, Optional, Sequence, Tuple, Union

import torch

from . import _C, _world
from ._C import DeviceMesh, Group
from .errors import InvalidArgument, UnknownName

__all__ = ["DeviceMesh", "Group", "init_device_mesh"]

_active = threading.local()


def init_device_mesh(device_type: str, mesh_shape: Sequence[int], *,
                     mesh_dim_names: Optional[Sequence[str]] = None,
                     backend_override: None = None) -> DeviceMesh:
    """Returns the mesh of the ranks 0, 1, 2, ... in row-major order.

    Makes this process a rank first, where it is none yet; see `tessera.init`. Communicates nothing
    else: groups are made when they are first used.

    Args:
        device_type: `"cpu"`, `"cuda"`, ..., without an index.
        mesh_shape: the number of ranks along each dim.
        mesh_dim_names: one name per dim, all different.
    """
    _refuse_override("init_device_mesh", backend_override)
    sizes = list(mesh_shape)
    _check_device_type(device_type)
    names = _checked_names(sizes, mesh_dim_names)
    _world._ensure()
    if math.prod(sizes) > _C.world_size():
        raise InvalidArgument(
            f"init_device_mesh: Mesh should not be bigger than default world size {_C.world_size()}, "
            f"but found {math.prod(sizes)} ranks; start more ranks or make it smaller")
    return _make(device_type, sizes, names, [])


def _refuse_override(what: str, backend_override: object) -> None:
    if backend_override is not None:
        raise InvalidArgument(f"{what}: backend_override given; groups use the backend of the world that "
                              "they belong to: leave it out")


def _check_device_type(device_type: str) -> None:
    if not isinstance(device_type, str) or not device_type or ":" in device_type:
        raise InvalidArgument(f"DeviceMesh: device type {device_type!r} given. Device type with index "
                              "is not supported: pass the type alone, such as 'cpu' or 'cuda'")


def _checked_names(sizes, names) -> List[str]:
    names = list(names) if names is not None else []
    if len(set(names)) != len(names):
        raise InvalidArgument(f"Each mesh_dim_name must be unique, but found {names}")
    if names and len(names) != len(sizes):
        raise InvalidArgument("mesh_shape and mesh_dim_names should have same length, but found "
                              f"len(mesh_dim_names): {len(names)} and len(mesh_shape): {len(sizes)}")
    return names


_init: Any = DeviceMesh.__init__


def _make(device_type, sizes, names, ranks) -> DeviceMesh:
    mesh = DeviceMesh.__new__(DeviceMesh)
    _init(mesh, device_type, sizes, names, ranks)
    return mesh


def _dim_of(self, mesh_dim: Union[int, str, None], what: str) -> int:
    if mesh_dim is None:
        if self.ndim != 1:
            raise InvalidArgument(
                f"{what}: Found the DeviceMesh have {self.ndim} dimensions. Optional kwarg `mesh_dim` "
                "needs to be specified when device_mesh.ndim > 1: give the dim, or mesh['name']")
        return 0
    if isinstance(mesh_dim, str):
        names = self._names()
        if mesh_dim not in names:
            raise UnknownName(f"{what}: mesh dimension '{mesh_dim}' does not exist; the mesh has "
                              f"mesh_dim_names={names}")
        return names.index(mesh_dim)
    if not -self.ndim <= mesh_dim < self.ndim:
        raise InvalidArgument(f"{what}: mesh dim {mesh_dim} given; {self!r} has {self.ndim} dim(s)")
    return mesh_dim % self.ndim


def _root_of(mesh: DeviceMesh) -> DeviceMesh:
    """The mesh that this one was sliced or flattened from, or itself."""
    return getattr(mesh, "_root", mesh)


def _own_group(group) -> Group:
    """The `Group` of the members of a process group of torch.distributed."""
    if isinstance(group, Group):
        return group
    import torch.distributed as dist

    ranks = dist.get_process_group_ranks(group)
    _world._ensure()
    return _C.group_of(ranks)


def _from_groups(groups, device_type, mesh, mesh_dim_names) -> DeviceMesh:
    if len(groups) == 0:
        raise InvalidArgument("from_group: Expects at least one ProcessGroup to be passed")
    if len(groups) == 1 and mesh is None:
        return DeviceMesh.from_group(groups[0], device_type, mesh_dim_names=mesh_dim_names)
    if mesh is None:
        raise InvalidArgument("from_group: Must pass mesh if passing multiple ProcessGroups")
    own = [_own_group(group) for group in groups]
    result = DeviceMesh(device_type, mesh, mesh_dim_names=mesh_dim_names)
    found = [group.ranks for group in result.get_all_groups()] if result.get_coordinate() else []
    given = [group.ranks for group in own]
    if found and found != given:
        raise InvalidArgument(f"from_group: Invalid mesh {result.mesh.tolist()} for ProcessGroups with ranks "
                              f"{given}: its dims have the groups {found}")
    return result


# For type checkers its objects are meshes; the methods are moved over below.
if TYPE_CHECKING:
    _MeshBase = DeviceMesh
else:
    _MeshBase = object


class _Methods(_MeshBase):
    """What users see of a DeviceMesh."""

    def __copy__(self):
        return self

    def __deepcopy__(self, _memo):
        # It names ranks and never changes, so a copied module works on the same one.
        return self

    def __reduce_ex__(self, _protocol):
        raise pickle.PicklingError("a DeviceMesh cannot be pickled: its groups are connections of this "
                                   "process. Save its shape and names, and call init_device_mesh again")

    def __init__(self, device_type: str, mesh: Union[torch.Tensor, Sequence], *,
                 mesh_dim_names: Optional[Sequence[str]] = None, backend_override: None = None) -> None:
        """The mesh of the ranks in `mesh`, a tensor or nested lists of global ranks. It may leave out ranks:
        these have no coordinate in it, hold empty parts and skip its traffic."""
        _refuse_override("DeviceMesh", backend_override)
        _check_device_type(device_type)
        ranks = torch.as_tensor(mesh, dtype=torch.int64, device="cpu")
        flat = ranks.flatten().tolist()
        if len(set(flat)) != len(flat):
            raise InvalidArgument(f"DeviceMesh: ranks {flat} given, one of them twice "
                                  "(rank_coords.size(0) must be 0 or 1); name every rank once")
        names = _checked_names(list(ranks.shape), mesh_dim_names)
        _world._ensure()
        _init(self, device_type, list(ranks.shape), names, flat)

    @property
    def mesh_dim_names(self) -> Optional[Tuple[str, ...]]:
        """The dims' names; None when they have none."""
        return tuple(self._names()) or None

    @property
    def shape(self) -> Tuple[int, ...]:
        """The number of ranks along each dim."""
        return tuple(self._sizes())

    @property
    def mesh(self) -> torch.Tensor:
        """The global ranks, as a tensor of the mesh's shape."""
        return torch.tensor(self._ranks(), dtype=torch.int64).reshape(self._sizes())

    def size(self, mesh_dim: Optional[int] = None) -> int:
        """The number of ranks, in all or along a dim."""
        return math.prod(self._sizes()) if mesh_dim is None else self._sizes()[mesh_dim]

    def get_rank(self) -> int:
        """This rank's global number."""
        return self._world_rank()

    def get_coordinate(self) -> Optional[Tuple[int, ...]]:
        """This rank's index along each dim; None outside of the mesh."""
        return self._coordinate()

    def get_local_rank(self, mesh_dim: Union[int, str, None] = None) -> int:
        """This rank's index along a dim, which may be left out when there is only one."""
        dim = _dim_of(self, mesh_dim, "get_local_rank")
        coordinate = self._coordinate()
        if coordinate is None:
            raise InvalidArgument(f"get_local_rank: rank {self._world_rank()} is not in {self!r}; ask "
                                  "get_coordinate() first")
        return coordinate[dim]

    def get_group(self, mesh_dim: Union[int, str, None] = None) -> Group:
        """The ranks along a dim through this one, which may be left out when there is only one."""
        return self._group_along(_dim_of(self, mesh_dim, "get_group"))

    def get_all_groups(self) -> List[Group]:
        """One group per dim."""
        return [self._group_along(dim) for dim in range(self.ndim)]

    def __getitem__(self, mesh_dim_names: Union[str, Tuple[str, ...]]) -> DeviceMesh:
        """The sub-mesh with the named dims through this rank; or what was flattened under that name."""
        names = (mesh_dim_names,) if isinstance(mesh_dim_names, str) else tuple(mesh_dim_names)
        own = self._names()
        if not own:
            raise InvalidArgument("Cannot slice a DeviceMesh without mesh_dim_names! Give them when it is "
                                  "made")
        flattened = getattr(self, "_flattened", {})
        if len(names) == 1 and names[0] in flattened:
            return flattened[names[0]]
        places = [own.index(name) if name in own else -1 for name in names]
        if not names or -1 in places:
            raise UnknownName(f"Invalid mesh_dim_names {names} specified. Valid mesh_dim_names are "
                              f"{[*own, *flattened]}; one that was flattened stands alone.")
        if places != sorted(set(places)):
            raise UnknownName(f"Invalid mesh_dim_names {names} specified. Mesh dim indices should be in "
                              f"ascending order, as in {own}")
        if list(names) == own:
            return self
        part = self._slice(list(names))
        part._root = _root_of(self)
        return part

    def flatten(self, mesh_dim_name: Optional[str] = None, backend_override: None = None) -> DeviceMesh:
        """All ranks in one dim, with the dims' names joined by `_` unless there is a name. The mesh that
        this one was sliced from knows it by that name: `mesh["dp", "cp"].flatten("data")`, then
        `mesh["data"]`."""
        _refuse_override("flatten", backend_override)
        own = self._names()
        if not own:
            raise InvalidArgument("Cannot flatten a DeviceMesh without mesh_dim_names! Give them when it is "
                                  "made")
        name = mesh_dim_name or "_".join(own)
        if own == [name]:
            return self
        root = _root_of(self)
        if name in root._names():
            raise InvalidArgument(f"flatten: {name} already exists for submesh of the {root!r}. Please "
                                  "specify another valid mesh_dim_name.")
        result = self._flatten_to(name)
        known = root.__dict__.setdefault("_flattened", {})
        if known.setdefault(name, result) != result:
            raise InvalidArgument(f"flatten: Flatten mesh with mesh_dim_name {name} has been created before, "
                                  f"as {known[name]!r}. Please specify another valid mesh_dim_name.")
        result._root = root
        return known[name]

    def unflatten(self, dim: Union[int, str], mesh_sizes: Sequence[int],
                  mesh_dim_names: Sequence[str] = (), backend_override: None = None) -> DeviceMesh:
        """One dim as several."""
        _refuse_override("unflatten", backend_override)
        return self._unflatten_to(_dim_of(self, dim, "unflatten"), list(mesh_sizes),
                                  list(mesh_dim_names))

    @staticmethod
    def from_group(group, device_type: str, mesh=None, *,
                   mesh_dim_names: Optional[Sequence[str]] = None) -> DeviceMesh:
        """The one-dimensional mesh of a group's members; of several groups, one per dim, the mesh `mesh` that
        they are the groups of. A group is a `Group`, or a process group of torch.distributed, whose world
        this process then is a rank of."""
        if isinstance(group, (list, tuple)):
            return _from_groups(group, device_type, mesh, mesh_dim_names)
        group = _own_group(group)
        ranks = group.ranks if mesh is None else torch.as_tensor(mesh).flatten().tolist()
        if ranks != group.ranks:
            raise InvalidArgument(f"from_group: Invalid mesh {ranks} for ProcessGroup with ranks "
                                  f"{group.ranks}")
        names = _checked_names([group.size()], mesh_dim_names)
        return DeviceMesh._of_group(group, device_type, names[0] if names else "")

    def __repr__(self) -> str:
        names, sizes = self._names(), self._sizes()
        inside = ", ".join(f"{n}={s}" for n, s in zip(names, sizes)) if names else ", ".join(
            map(str, sizes))
        ranks = self._ranks()
        shown = "" if ranks == list(range(len(ranks))) else f", ranks {ranks}"
        return f"DeviceMesh(({inside}), '{self.device_type}'{shown})"

    def __enter__(self) -> DeviceMesh:
        if not hasattr(_active, "meshes"):
            _active.meshes = []
        _active.meshes.append(self)
        return self

    def __exit__(self, *_) -> None:
        _active.meshes.pop()

    # The names that PyTorch has.
    _flatten = flatten
    _unflatten = unflatten


def _current_mesh() -> DeviceMesh:
    """The mesh of the innermost `with mesh:` of the calling rank."""
    meshes = getattr(_active, "meshes", None)
    if not meshes:
        raise InvalidArgument("No device mesh is currently active! Pass one, or write `with mesh:`")
    return meshes[-1]


for _name, _value in vars(_Methods).items():
    if _name not in ("__module__", "__doc__", "__dict__", "__weakref__", "__qualname__"):
        if callable(_value):
            # Python's own messages name a function by this.
            _value.__qualname__ = f"DeviceMesh.{_name}"
        setattr(DeviceMesh, _name, _value)
DeviceMesh.__module__ = "tessera"
DeviceMesh.__doc__ = """Ranks that can communicate, arranged in dims.

Making a mesh communicates nothing; its groups are made when they are first used."""
