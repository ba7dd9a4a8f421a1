"""Sharding the parameters of modules: one by one, or whole modules by a plan."""

from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch
from torch import nn
from torch.utils._pytree import tree_map_only

from . import _C
from ._sharding_call import _SPECS, ShardingSpec, _agreed, _check_spec, _group_or_current
from ._sharding_plan import Sharder, ShardingPlan
from .device_mesh import DeviceMesh, Group
from .errors import InvalidArgument, UnknownAttribute, UnknownName, WrongKind
from .functional_collectives import GroupLike


def shard_parameter(module: nn.Module, param_name: str, sharding_spec: ShardingSpec, src_rank: int = 0,
                    process_group: GroupLike = None) -> None:
    """Makes a parameter or buffer of `module` a DTensor that is placed as the spec says, in place:
    optimizers made before see it too. The values are member `src_rank`'s.

    Raises:
        AttributeError: when the module has no such attribute.
        ValueError: when that is no tensor or not contiguous, or no DTensor can be placed so, or the ranks
            disagree. Nothing is changed.
    """
    name = "shard_parameter"
    group = _group_or_current(process_group)

    def check():
        tensor = _own_tensor(name, module, param_name)
        _check_spec(name, sharding_spec, f"'{param_name}'")
        _C.check_member(name, "src_rank", src_rank, group)
        return _C.plan_change(name, param_name, tensor, sharding_spec, group)

    change = _agreed(name, group, check, lambda found: [
        ("src_rank", str(src_rank)), ("sharding_spec", repr(sharding_spec)),
        ("param", found.describe())])
    change.apply(src_rank, group)


def _own_tensor(function: str, module: nn.Module, name: str) -> torch.Tensor:
    kind = type(module).__name__
    if not hasattr(module, name):
        tensors = [*module._parameters, *module._buffers]
        raise UnknownAttribute(f"{function}: {kind} has no attribute `{name}`; its tensors are {tensors}")
    tensor = getattr(module, name)
    if not isinstance(tensor, torch.Tensor):
        raise InvalidArgument(f"{function}: Expected {kind}.{name} to be a Tensor, but found "
                              f"{type(tensor).__name__}")
    return tensor


def shard_module(module: nn.Module, plan: ShardingPlan, src_rank: int = 0,
                 process_group: GroupLike = None, *, replicate_rest: bool = True) -> None:
    """Shards a module as a plan says: parameters and Sharders, then `output_plan`, then
    `return_local_tensor`.

    Everything is checked, and compared between the ranks, before the first change. Inputs are to be
    DTensors on the parameters' mesh.

    Args:
        replicate_rest: make what the plan does not name replicated DTensors, because operations do not
            mix DTensors and plain tensors.

    Raises:
        AttributeError: for a name that leads nowhere.
        KeyError: for a Sharder of the module itself.
        TypeError: for an entry that is neither a spec nor a Sharder.
        RuntimeError: for a parameter, Sharder or module beneath a Sharder's module.
        ValueError: for what `shard_parameter` refuses, and when the ranks disagree.
    """
    group = _group_or_current(process_group)

    def check():
        _C.check_member("shard_module", "src_rank", src_rank, group)
        sharding = _ModuleSharding(module, plan, group)
        if replicate_rest:
            sharding.replicate_rest()
        return sharding

    sharding = _agreed("shard_module", group, check, lambda found: [
        ("src_rank", str(src_rank)), ("plan", _plan_text(plan)),
        ("parameters", found.describe())])
    sharding.apply(src_rank)


def _plan_text(plan: ShardingPlan) -> str:
    def text(entry):
        return repr(entry) if isinstance(entry, _SPECS) else type(entry).__qualname__

    parts = [f"'{path}': {text(entry)}" for path, entry in sorted(plan.plan.items())]
    parts += [f"output of '{path}': {text(entry)}"
              for path, entry in sorted((plan.output_plan or {}).items())]
    parts += [f"local tensor of '{path}'" for path in plan.return_local_tensor or ()]
    return "{" + ", ".join(parts) + "}"


def _is_pattern(path: str) -> bool:
    return any(letter in path for letter in "*?[")


def _is_at_or_below(path: str, above: str) -> bool:
    return path == above or path.startswith(above + ".")


class _Paths:
    """What the names of a plan may stand for."""

    def __init__(self, root: nn.Module, what: str, names: List[str]) -> None:
        self._root = type(root).__name__
        self._what = what
        self.names = names

    def expand(self, key: str) -> List[str]:
        """The names that a key stands for."""
        _C.check_pattern("shard_module", key)
        if not _is_pattern(key):
            found = [key] if key in self.names else []
        else:
            found = [name for name in self.names if _C.path_matches(key, name)]
        if not found:
            near = _C.near_names_text(key, [name for name in self.names if name])
            raise UnknownAttribute(f"shard_module: {self._root} has no attribute `{key}`: the plan names "
                                   f"it, but there is no such {self._what}; {near}")
        return found

    def resolve(self, entries: Dict[str, Any]) -> Dict[str, Any]:
        """The entry of every name that some key stands for."""
        keys: Dict[str, str] = {}
        for key, entry in sorted(entries.items()):
            for name in self.expand(key):
                # A name itself goes before patterns.
                if key != name and name in entries:
                    continue
                known = keys.setdefault(name, key)
                if entries[known] != entry:
                    raise InvalidArgument(f"shard_module: '{known}' and '{key}' both stand for '{name}', "
                                          "and say different things; name that path itself")
        return {name: entries[key] for name, key in sorted(keys.items())}


@dataclass
class _ModuleSharding:
    """All that is going to happen to a module, found and checked before any of it does."""

    root: nn.Module
    plan: ShardingPlan
    group: Group
    changes: List[Any] = field(default_factory=list)
    meshes: Dict[int, DeviceMesh] = field(default_factory=dict)
    sharders: Dict[str, Sharder] = field(default_factory=dict)
    # The tensors that Sharders take care of, with where they are.
    cared: List[Tuple[str, torch.Tensor]] = field(default_factory=list)

    def __post_init__(self) -> None:
        modules = dict(self.root.named_modules(remove_duplicate=False))
        self.modules = _Paths(self.root, "module", list(modules))
        tensors = [name for name, _ in _tensors_below(self.root)]
        self.tensors = _Paths(self.root, "parameter or buffer", tensors)
        specs, sharders = self._separate()
        self._add_sharders(sharders)
        self._add_parameters(specs)
        for path, sharder in self.sharders.items():
            self._care_for(path, sharder)
        self.outputs = self.modules.resolve(self._checked_outputs())
        for path, spec in self.outputs.items():
            self._check_stays(path)
            _C.check_output_spec(path, spec, self.group)
        self.locals = self.modules.resolve(dict.fromkeys(self.plan.return_local_tensor or (), True))
        for path in self.locals:
            self._check_stays(path)

    def replicate_rest(self) -> None:
        """Adds what the plan does not name."""
        meshes = {repr(mesh): mesh for mesh in self.meshes.values()}
        rest = (next(iter(meshes.values())) if len(meshes) == 1
                else DeviceMesh.from_group(self.group, self._device_type()))
        for path, module in self.root.named_modules(remove_duplicate=False):
            if self._sharder_above(path) is not None:
                continue
            mesh = self.meshes.get(id(module), rest)
            for name, tensor in _own_tensors(module):
                if _C.is_dtensor(tensor) or self._change_of(tensor) or self._carer_of(tensor):
                    continue
                self.changes.append(
                    _C.plan_replicated("shard_module", _joined(path, name), tensor, mesh))

    def describe(self) -> str:
        """What must be the same on all ranks."""
        parts = [change.describe() for change in self.changes]
        parts += [f"{path} {tensor.dtype}{list(tensor.shape)}" for path, tensor in self.cared]
        return f"[{', '.join(parts)}]"

    def apply(self, src_rank: int) -> None:
        for change in self.changes:
            change.apply(src_rank, self.group)
        instead: Dict[int, nn.Module] = {}
        replaced = []  # Alive, so that no other module gets its id.
        for path, sharder in self.sharders.items():
            module = self.root.get_submodule(path)
            if id(module) not in instead:
                replaced.append(module)
                instead[id(module)] = _checked_module(path, sharder, sharder.shard(module))
            parent, _, name = path.rpartition(".")
            self.root.get_submodule(parent)._modules[name] = instead[id(module)]
        for path, spec in self.outputs.items():
            self.root.get_submodule(path).register_forward_hook(_reshard_hook(spec))
        for path in self.locals:
            self.root.get_submodule(path).register_forward_hook(_output_hook(_C.local_output))

    def _separate(self) -> Tuple[Dict[str, ShardingSpec], Dict[str, Sharder]]:
        specs: Dict[str, ShardingSpec] = {}
        sharders: Dict[str, Sharder] = {}
        for path, entry in self.plan.plan.items():
            if isinstance(entry, _SPECS):
                specs[path] = entry
            elif isinstance(entry, Sharder):
                if path == "":
                    raise UnknownName("shard_module: Module path must not be empty for custom sharder! "
                                      f"{type(entry).__name__} was given for the module itself, which has "
                                      "no parent where it could be replaced")
                sharders[path] = entry
            else:
                raise WrongKind("shard_module: Only `ShardingSpec` and `Sharder` are supported to shard "
                                f"'{path}', but {type(entry).__name__} was given")
        return specs, sharders

    def _checked_outputs(self) -> Dict[str, ShardingSpec]:
        outputs = self.plan.output_plan or {}
        for path, spec in outputs.items():
            if not isinstance(spec, _SPECS):
                raise WrongKind("shard_module: Only `ShardingSpec` is supported as output_plan for "
                                f"'{path}', but {type(spec).__name__} was given")
        return outputs

    def _add_sharders(self, sharders: Dict[str, Sharder]) -> None:
        for path, sharder in self.modules.resolve(sharders).items():
            if path == "":
                raise UnknownName("shard_module: Module path must not be empty for custom sharder! A "
                                  "pattern stands for the module itself too; write '*' for those below it")
            above = self._sharder_above(path)
            if above is not None:
                raise InvalidArgument("shard_module: ShardingPlan is in-valid, trying to shard a module: "
                                      f"{path}, but there's already a Sharder entry for module {above}, "
                                      "which takes care of all that is in it")
            self.sharders[path] = sharder

    def _add_parameters(self, specs: Dict[str, ShardingSpec]) -> None:
        # A name that is no tensor's says best by itself what is wrong with it.
        strange = {path: spec for path, spec in specs.items()
                   if not _is_pattern(path) and path not in self.tensors.names}
        known = {path: spec for path, spec in specs.items() if path not in strange}
        for path, spec in {**strange, **self.tensors.resolve(known)}.items():
            parent, _, name = path.rpartition(".")
            self.modules.expand(parent)
            above = self._sharder_above(parent)
            if above is not None:
                raise InvalidArgument("shard_module: ShardingPlan is in-valid, trying to shard a "
                                      f"parameter: {path}, but there's already a Sharder entry for module "
                                      f"{above}, parameter sharding should not conflict with the "
                                      "submodule tree that a Sharder is working with!")
            self._add_parameter(path, self.root.get_submodule(parent), name, spec)

    def _add_parameter(self, path: str, module: nn.Module, name: str, spec: ShardingSpec) -> None:
        tensor = _own_tensor("shard_module", module, name)
        change = _C.plan_change("shard_module", path, tensor, spec, self.group)
        self.meshes.setdefault(id(module), change.mesh)
        known = self._change_of(tensor)
        if known is None:
            self.changes.append(change)
        elif known.layout != change.layout:
            raise InvalidArgument(f"shard_module: '{known.path}' and '{path}' are the same tensor, but the "
                                  f"plan shards them as {known.layout} and {change.layout}")

    def _care_for(self, path: str, sharder: Sharder) -> None:
        """A module may be at several places, and a tensor in several modules: what a Sharder is given is
        changed by nobody else."""
        module = self.root.get_submodule(path)
        sharder.check(module)
        for earlier, another in self.sharders.items():
            if earlier == path:
                break
            if self.root.get_submodule(earlier) is module:
                if another is not sharder:
                    raise InvalidArgument(f"shard_module: '{earlier}' and '{path}' are the same module, but "
                                          "the plan gives it to two Sharders")
                return
        found = [(_joined(path, name), tensor) for name, tensor in _tensors_below(module)]
        for where, tensor in found:
            change = self._change_of(tensor)
            if change is not None:
                raise InvalidArgument("shard_module: ShardingPlan is in-valid, trying to shard a "
                                      f"parameter: {change.path}, but it is the same tensor as {where}, "
                                      f"and there's already a Sharder entry for module {path}")
            other = self._carer_of(tensor)
            if other is not None:
                raise InvalidArgument(f"shard_module: '{other}' and '{where}' are the same tensor, but a "
                                      "Sharder entry is there for each of their modules; give one Sharder "
                                      "a module that both are in")
        self.cared += found

    def _check_stays(self, path: str) -> None:
        above = self._sharder_above(path)
        if above is not None and above != path:
            raise InvalidArgument("shard_module: ShardingPlan is in-valid, trying to change what module "
                                  f"{path} returns, but there's already a Sharder entry for module {above} "
                                  "above it")

    def _sharder_above(self, path: str) -> Optional[str]:
        return next((above for above in self.sharders if _is_at_or_below(path, above)), None)

    def _change_of(self, tensor: torch.Tensor) -> Optional[Any]:
        return next((change for change in self.changes if change.tensor is tensor), None)

    def _carer_of(self, tensor: torch.Tensor) -> Optional[str]:
        return next((path for path, cared in self.cared if cared is tensor), None)

    def _device_type(self) -> str:
        return next((parameter.device.type for parameter in self.root.parameters()), "cpu")


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _own_tensors(module: nn.Module) -> List[Tuple[str, torch.Tensor]]:
    tensors = [*module._parameters.items(), *module._buffers.items()]
    return [(name, tensor) for name, tensor in tensors if tensor is not None]


def _tensors_below(module: nn.Module) -> List[Tuple[str, torch.Tensor]]:
    return [(_joined(path, name), tensor)
            for path, owner in module.named_modules(remove_duplicate=False)
            for name, tensor in _own_tensors(owner)]


def _checked_module(path: str, sharder: Sharder, module: Any) -> nn.Module:
    if not isinstance(module, nn.Module):
        raise WrongKind(f"shard_module: {type(sharder).__name__} returned {type(module).__name__} for "
                        f"'{path}'; it must return the module that takes its place")
    return module


def _output_hook(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable:
    def hook(_module, _inputs, outputs):
        return tree_map_only(torch.Tensor, lambda x: change(x) if _C.is_dtensor(x) else x, outputs)

    return hook


def _reshard_hook(spec: ShardingSpec) -> Callable:
    return _output_hook(lambda tensor: _C.reshard_output(tensor, spec))
