"""Which module communicated: found by hooks in the modules that are called, forth and back."""

import threading
from typing import Any, Callable, Dict, List, NamedTuple, Tuple

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.utils._pytree import tree_leaves

from . import _C

Path = Tuple[str, ...]


class Place(NamedTuple):
    """Where a rank is: the modules around, outermost first, and whether in a backward pass."""

    path: Path = ()
    is_backward: bool = False

    @property
    def name(self) -> str:
        """The dotted name of the innermost module; "Global" outside of all."""
        return ".".join(self.path) if self.path else "Global"

    @property
    def phase(self) -> str:
        return "backward" if self.is_backward else "forward"


class ModuleTrace:
    """Remembers from which communication on the calling rank was where.

    `count` says how many communications there have been. Gradients of what a module returns are the
    beginning of its backward pass, gradients of what it was given the end.
    """

    def __init__(self, count: Callable[[], int]) -> None:
        self._count = count
        self._marks: List[Tuple[int, Place]] = [(0, Place())]
        self._path: Path = ()
        self._names: Dict[int, str] = {}
        self._is_backward = False
        self.parameters: Dict[str, Dict[str, torch.Tensor]] = {}
        self.placements: Dict[str, Any] = {}

    def start(self) -> None:
        """Begins to watch the modules that the calling thread calls."""
        self._thread = threading.get_ident()
        self._handle = register_module_forward_pre_hook(self._begin)

    def stop(self) -> None:
        self._handle.remove()

    def places(self, count: int) -> List[Place]:
        """Where the rank was at each of the first `count` communications."""
        result: List[Place] = []
        ends = [mark[0] for mark in self._marks[1:]] + [count]
        for (_, place), end in zip(self._marks, ends):
            result.extend([place] * (end - len(result)))
        return result

    # ---- forward ---------------------------------------------------------------------------------

    def _begin(self, module: nn.Module, inputs: Any) -> None:
        if threading.get_ident() != self._thread:
            return
        outer, path = self._path, (*self._path, self._name_in(module))
        if torch._C._current_graph_task_id() != -1:
            return  # Computed again for the backward pass, whose place is known.
        self._go(path)
        self._note_parameters(module, Place(path).name)
        for tensor in _with_gradient(inputs):
            tensor.register_hook(lambda _, path=path: self._leave(path))

        def end(_module: nn.Module, _inputs: Any, outputs: Any) -> None:
            handle.remove()
            self._go(outer)
            for tensor in _with_gradient(outputs):
                tensor.register_hook(lambda _, path=path: self._enter(path))

        # The last of the module's hooks, so that what the others send counts as the module's.
        handle = module.register_forward_hook(end, always_call=True)

    def _name_in(self, module: nn.Module) -> str:
        """The name of a module in the one around it; a root is called by its class."""
        for name, child in module.named_modules():
            if name and id(child) not in self._names:
                self._names[id(child)] = name
        if not self._path or id(module) not in self._names:
            return type(module).__name__
        own, around = self._names[id(module)], ".".join(self._path[1:])
        return own[len(around) + 1:] if around and own.startswith(around + ".") else own

    def _note_parameters(self, module: nn.Module, name: str) -> None:
        for key, parameter in module.named_parameters(recurse=False):
            self.parameters.setdefault(name, {})[key] = parameter.data
            if _C.is_dtensor(parameter):
                self.placements[f"{name}.{key}"] = _C.placements_of(parameter)

    # ---- backward --------------------------------------------------------------------------------

    def _enter(self, path: Path) -> None:
        if not self._is_backward:
            self._is_backward = True
            torch.autograd.Variable._execution_engine.queue_callback(self._end_backward)
        # An outer module that returns what an inner one returned must not hide it.
        if self._path[:len(path)] != path:
            self._go(path, is_backward=True)

    def _leave(self, path: Path) -> None:
        if self._path[:len(path)] == path:
            self._go(path[:-1], is_backward=True)

    def _end_backward(self) -> None:
        self._is_backward = False
        self._go(())

    def _go(self, path: Path, is_backward: bool = False) -> None:
        self._path = path
        self._marks.append((self._count(), Place(path, is_backward)))


def _with_gradient(tree: Any) -> List[torch.Tensor]:
    return [leaf for leaf in tree_leaves(tree)
            if isinstance(leaf, torch.Tensor) and leaf.requires_grad and torch.is_grad_enabled()]
