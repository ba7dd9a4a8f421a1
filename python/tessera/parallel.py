"""Tensor parallelism by plans, as in `torch.distributed.tensor.parallel`."""

import warnings
from abc import ABC, abstractmethod
from fnmatch import fnmatch
from typing import Any, Dict, Optional, Tuple, Union

import torch
from torch import nn

from . import _C
from ._dtensor import DTensor, distribute_tensor
from ._module import distribute_module
from .device_mesh import DeviceMesh, _current_mesh
from .errors import InvalidArgument, NotSupported
from .placement_types import Placement, Replicate, Shard

__all__ = [
    "ColwiseParallel", "ParallelStyle", "PrepareModuleInput", "PrepareModuleInputOutput",
    "PrepareModuleOutput", "RowwiseParallel", "SequenceParallel", "parallelize_module",
]

Layouts = Union[Placement, Tuple[Optional[Placement], ...], None]


def parallelize_module(module: nn.Module, device_mesh: Optional[DeviceMesh] = None,
                       parallelize_plan: Union["ParallelStyle", Dict[str, "ParallelStyle"], None] = None,
                       *, src_data_rank: Optional[int] = 0) -> nn.Module:
    """Applies a style to a module, or a plan of styles to its submodules, in place, and returns it.

    Args:
        device_mesh: a mesh of one dim, such as `mesh["tp"]`; without it, that of the `with mesh:` around.
        parallelize_plan: a style, or a dict from the names of submodules to styles. Names may have
            dots and the wildcards of `fnmatch`: `"layers.*.attention"`. One that matches nothing is
            warned about.
        src_data_rank: whose values the parameters take; None when all ranks have equal values.
    """
    mesh = device_mesh if device_mesh is not None else _current_mesh()
    if parallelize_plan is None:
        warnings.warn("No parallelize_plan is provided, so this parallelize_module call will do nothing.",
                      stacklevel=2)
        return module
    if isinstance(parallelize_plan, ParallelStyle):
        parallelize_plan.src_data_rank = src_data_rank
        return parallelize_plan._apply(module, mesh)
    if not isinstance(parallelize_plan, dict):
        raise TypeError("Expect Union[ParallelStyle, Dict[str, ParallelStyle]] for parallelize_plan, "
                        f"{type(parallelize_plan)} found!")
    for path, style in parallelize_plan.items():
        matches = list(_matching(module, path.split("."))) if path else [module]
        if not matches:
            warnings.warn(f"Parallelize plan key '{path}' could not be resolved: no submodule matching "
                          f"it in module {type(module).__name__}, skipping this plan entry.",
                          stacklevel=2)
        for submodule in matches:
            parallelize_module(submodule, mesh, style, src_data_rank=src_data_rank)
    return module


def _matching(module: nn.Module, tokens):
    for name, child in module.named_children():
        if fnmatch(name, tokens[0]):
            if len(tokens) == 1:
                yield child
            else:
                yield from _matching(child, tokens[1:])


def _as_dtensor(value, mesh, placement, shape=None):
    """The DTensor of a local part; DTensors as they are."""
    if _C.is_dtensor(value):
        return value
    if not isinstance(value, torch.Tensor):
        raise InvalidArgument(f"expecting input to be a torch.Tensor! Got {type(value).__name__}")
    return _C.from_local(value, mesh, (placement,), False, shape, None)


def _placed(value, placement, async_op=False):
    if value.placements == (placement,):
        return value
    return _C.redistribute(value, None, (placement,), async_op, None, None)


def _same_layout(tensor, placement):
    """`placement` with a dim counted from the front, as DTensors have it."""
    if isinstance(placement, Shard) and placement.dim < 0:
        return Shard(placement.dim + tensor.dim())
    return placement


class ParallelStyle(ABC):
    """How a module is spread over a mesh of one dim: which parameters are sharded, and what is done
    with inputs and outputs."""

    src_data_rank: Optional[int] = 0

    @abstractmethod
    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        """Changes the module in place and returns it."""

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value}" for name, value in vars(self).items()
                          if name != "src_data_rank")
        return f"{type(self).__name__}({shown})"

    def _shard(self, module: nn.Module, name: str, mesh: DeviceMesh, placement: Placement) -> None:
        parameter = getattr(module, name, None)
        if parameter is None:
            return
        values = distribute_tensor(parameter.detach(), mesh, [placement],
                                   src_data_rank=self.src_data_rank)
        module.register_parameter(name, nn.Parameter(values, requires_grad=parameter.requires_grad))


class _LayerParallel(ParallelStyle):
    """What ColwiseParallel and RowwiseParallel share: a linear layer or an embedding with a layout for
    its input, one for its output, and those in which it computes."""

    def __init__(self, input_layouts: Placement, output_layouts: Placement, use_local_output: bool):
        self.input_layouts = (input_layouts,)
        self.output_layouts = (output_layouts,)
        self.use_local_output = use_local_output

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        if not isinstance(module, (nn.Linear, nn.Embedding)):
            raise NotSupported(f"{type(self).__name__} currently only support nn.Linear and "
                               f"nn.Embedding! Got {type(module).__name__}")
        desired = self._desired_input(module)

        def prepare_input(owner, inputs, mesh):
            given = self.input_layouts[0]
            value = _as_dtensor(inputs[0], mesh, given, _whole_input(owner, inputs[0], given))
            return (_placed(value, _same_layout(value, desired), async_op=True), *inputs[1:])

        def prepare_output(_owner, outputs, _mesh):
            value = _placed(outputs, _same_layout(outputs, self.output_layouts[0]), async_op=True)
            return value.to_local() if self.use_local_output else value

        return distribute_module(module, device_mesh, self._partition, prepare_input, prepare_output)

    def _desired_input(self, module: nn.Module) -> Placement:
        raise NotImplementedError

    def _partition(self, name: str, module: nn.Module, mesh: DeviceMesh) -> None:
        raise NotImplementedError


def _whole_input(module, value, placement):
    """The global shape of a linear layer's input that is cut along its features, whose number the layer
    knows; None where the ranks must tell each other."""
    if not isinstance(module, nn.Linear) or not isinstance(placement, Shard):
        return None
    if _C.is_dtensor(value) or placement.dim not in (-1, value.dim() - 1):
        return None
    return [*value.shape[:-1], module.weight.shape[1]]


class ColwiseParallel(_LayerParallel):
    """Cuts the outputs of a linear layer, or the columns of an embedding, over the mesh.

    Args:
        input_layouts: how a plain input is placed; Replicate unless given.
        output_layouts: how the output is to be placed; sharded along the last dim unless given.
        use_local_output: return the local part instead of the DTensor.
    """

    def __init__(self, *, input_layouts: Optional[Placement] = None,
                 output_layouts: Optional[Placement] = None, use_local_output: bool = True) -> None:
        super().__init__(input_layouts or Replicate(), output_layouts or Shard(-1), use_local_output)

    def _desired_input(self, module):
        return Replicate()

    def _partition(self, name, module, mesh):
        dim = 0 if isinstance(module, nn.Linear) else 1
        self._shard(module, "weight", mesh, Shard(dim))
        self._shard(module, "bias", mesh, Shard(0))


class RowwiseParallel(_LayerParallel):
    """Cuts the inputs of a linear layer, or the rows of an embedding, over the mesh; the results are
    contributions, which are summed where the output layout asks for it.

    Args:
        input_layouts: how a plain input is placed; sharded along the last dim unless given.
        output_layouts: how the output is to be placed; Replicate unless given.
        use_local_output: return the local part instead of the DTensor.
    """

    def __init__(self, *, input_layouts: Optional[Placement] = None,
                 output_layouts: Optional[Placement] = None, use_local_output: bool = True) -> None:
        super().__init__(input_layouts or Shard(-1), output_layouts or Replicate(), use_local_output)

    def _desired_input(self, module):
        return Shard(-1) if isinstance(module, nn.Linear) else Replicate()

    def _partition(self, name, module, mesh):
        dim = 1 if isinstance(module, nn.Linear) else 0
        self._shard(module, "weight", mesh, Shard(dim))
        self._shard(module, "bias", mesh, Replicate())


class SequenceParallel(ParallelStyle):
    """Replicates the parameters of a normalisation or dropout, whose input is cut along the sequence.

    Args:
        sequence_dim: the dim of the input that is the sequence.
        use_local_output: return the local part instead of the DTensor.
    """

    def __init__(self, *, sequence_dim: int = 1, use_local_output: bool = False) -> None:
        self.sequence_sharding = (Shard(sequence_dim),)
        self.use_local_output = use_local_output

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        def partition(_name, owner, mesh):
            for name in list(owner._parameters):
                self._shard(owner, name, mesh, Replicate())

        def prepare_input(owner, inputs, mesh):
            if not isinstance(inputs[0], torch.Tensor):
                raise InvalidArgument(f"expecting input of {owner} to be a torch.Tensor or DTensor, but "
                                      f"got {inputs[0]}")
            value = _as_dtensor(inputs[0], mesh, self.sequence_sharding[0])
            return (_placed(value, self.sequence_sharding[0], async_op=True), *inputs[1:])

        def prepare_output(_owner, outputs, _mesh):
            return outputs.to_local() if self.use_local_output else outputs

        return distribute_module(module, device_mesh, partition, prepare_input, prepare_output)


def _as_tuple(layouts: Layouts):
    return (layouts,) if isinstance(layouts, Placement) else layouts


def _prepared(value: Any, mesh: DeviceMesh, layout: Optional[Placement],
              desired: Optional[Placement], use_local: bool) -> Any:
    if layout is None:
        return value
    value = _as_dtensor(value, mesh, layout)
    if desired is not None:
        value = _placed(value, _same_layout(value, desired))
    return value.to_local() if use_local else value


class PrepareModuleInput(ParallelStyle):
    """Makes the inputs of a module DTensors, and places them otherwise.

    Args:
        input_layouts: how plain inputs are placed, one entry per input; None for those to be left alone.
        desired_input_layouts: how they are to be placed, as many entries.
        input_kwarg_layouts, desired_input_kwarg_layouts: the same for keyword arguments, by name.
        use_local_output: pass on local parts instead of DTensors.
    """

    def __init__(self, *, input_layouts: Layouts = None, desired_input_layouts: Layouts = None,
                 input_kwarg_layouts: Optional[Dict[str, Placement]] = None,
                 desired_input_kwarg_layouts: Optional[Dict[str, Placement]] = None,
                 use_local_output: bool = False) -> None:
        self.input_layouts = _as_tuple(input_layouts)
        self.desired_input_layouts = _as_tuple(desired_input_layouts)
        self.input_kwarg_layouts = input_kwarg_layouts or {}
        self.desired_input_kwarg_layouts = desired_input_kwarg_layouts or {}
        self.use_local_output = use_local_output
        if self.input_layouts is not None:
            if self.desired_input_layouts is None:
                raise InvalidArgument("desired module inputs should not be None!")
            if len(self.input_layouts) != len(self.desired_input_layouts):
                raise InvalidArgument("input_layouts and desired_input_layouts should have same length!")
        if len(self.input_kwarg_layouts) != len(self.desired_input_kwarg_layouts):
            raise InvalidArgument("input_kwarg_layouts and desired_input_kwarg_layouts should have same "
                                  "length!")

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        module.register_forward_pre_hook(
            lambda _, inputs, kwargs: (self._inputs(inputs, device_mesh),
                                       self._kwargs(kwargs, device_mesh)), with_kwargs=True)
        return module

    def _inputs(self, inputs, mesh):
        if self.input_layouts is None:
            return inputs
        if len(inputs) != len(self.input_layouts):
            raise InvalidArgument("module inputs and input_layouts should have same length!")
        return tuple(_prepared(value, mesh, layout, desired, self.use_local_output) for
                     value, layout, desired in zip(inputs, self.input_layouts,
                                                   self.desired_input_layouts))

    def _kwargs(self, kwargs, mesh):
        return {name: _prepared(value, mesh, self.input_kwarg_layouts.get(name),
                                self.desired_input_kwarg_layouts.get(name), self.use_local_output)
                for name, value in kwargs.items()}


class PrepareModuleOutput(ParallelStyle):
    """Makes the outputs of a module DTensors, and places them otherwise.

    Args:
        output_layouts: how plain outputs are placed, one entry per output; None for those to be left
            alone.
        desired_output_layouts: how they are to be placed, as many entries.
        use_local_output: return local parts instead of DTensors.
    """

    def __init__(self, *, output_layouts: Layouts, desired_output_layouts: Layouts,
                 use_local_output: bool = True) -> None:
        self.output_layouts = _as_tuple(output_layouts)
        self.desired_output_layouts = _as_tuple(desired_output_layouts)
        self.use_local_output = use_local_output
        if len(self.output_layouts) != len(self.desired_output_layouts):
            raise InvalidArgument("output_layouts and desired_output_layouts should have same length!")

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        module.register_forward_hook(lambda _, __, outputs: self._outputs(outputs, device_mesh))
        return module

    def _outputs(self, outputs, mesh):
        values = outputs if isinstance(outputs, tuple) else (outputs,)
        if len(values) != len(self.output_layouts):
            raise InvalidArgument("module outputs and output_layouts should have same length!")
        prepared = tuple(_prepared(value, mesh, layout, desired, self.use_local_output) for
                         value, layout, desired in zip(values, self.output_layouts,
                                                       self.desired_output_layouts))
        return prepared if isinstance(outputs, tuple) else prepared[0]


class PrepareModuleInputOutput(ParallelStyle):
    """`PrepareModuleInput` and `PrepareModuleOutput` together; `use_local_input` is the former's
    `use_local_output`."""

    def __init__(self, *, input_layouts: Layouts = None, desired_input_layouts: Layouts = None,
                 input_kwarg_layouts: Optional[Dict[str, Placement]] = None,
                 desired_input_kwarg_layouts: Optional[Dict[str, Placement]] = None,
                 use_local_input: bool = False, output_layouts: Layouts,
                 desired_output_layouts: Layouts, use_local_output: bool = True) -> None:
        self.prepare_module_input = PrepareModuleInput(
            input_layouts=input_layouts, desired_input_layouts=desired_input_layouts,
            input_kwarg_layouts=input_kwarg_layouts,
            desired_input_kwarg_layouts=desired_input_kwarg_layouts, use_local_output=use_local_input)
        self.prepare_module_output = PrepareModuleOutput(
            output_layouts=output_layouts, desired_output_layouts=desired_output_layouts,
            use_local_output=use_local_output)

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        self.prepare_module_input._apply(module, device_mesh)
        return self.prepare_module_output._apply(module, device_mesh)
