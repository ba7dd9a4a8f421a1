"""How modules work in parallel along a mesh dim: which parameters are cut, and what is done with inputs
and outputs."""

from abc import ABC, abstractmethod
from typing import Any, Dict, NamedTuple, Optional, Sequence, Tuple, Union

import torch
from torch import nn

from .. import _C
from .._dtensor import distribute_tensor
from .._module import distribute_module
from ..device_mesh import DeviceMesh
from ..errors import InvalidArgument, NotSupported
from ..placement_types import Placement, Replicate, Shard

__all__ = [
    "ColwiseParallel", "ParallelStyle", "PrepareModuleInput", "PrepareModuleInputOutput",
    "PrepareModuleOutput", "RowwiseParallel", "SequenceParallel",
]

Layouts = Union[Placement, Tuple[Optional[Placement], ...], None]


class _Along(NamedTuple):
    """A mesh dim, along which tensors are placed; along the others they stay as they are."""

    mesh: DeviceMesh
    dim: int

    def whole(self, placement: Placement) -> Tuple[Placement, ...]:
        """`placement` here, and Replicate along the others."""
        return tuple(placement if i == self.dim else Replicate() for i in range(self.mesh.ndim))

    def distributed(self, value: Any, placement: Placement,
                    shape: Optional[Sequence[int]] = None) -> torch.Tensor:
        """The DTensor of a local part; DTensors as they are."""
        if _C.is_dtensor(value):
            return value
        if not isinstance(value, torch.Tensor):
            raise InvalidArgument(f"expecting input to be a torch.Tensor! Got {type(value).__name__}")
        if self.mesh.ndim > 1:
            raise InvalidArgument(
                f"a plain tensor came to a module that works along one dim of {self.mesh!r}: it does not say "
                "how it is spread over the others; pass DTensors, and use_local_output=False in styles")
        return _C.from_local(value, self.mesh, (placement,), False, shape, None)

    def placed(self, value: torch.Tensor, placement: Placement, async_op: bool = False) -> torch.Tensor:
        """`value` with this placement here."""
        return _C.place_along(value, self.dim, placement, async_op)


class ParallelStyle(ABC):
    """How a module works in parallel along a mesh dim. `parallelize_module` sets `src_data_rank` and
    `mesh_dim`, then calls `_apply`."""

    src_data_rank: Optional[int] = 0
    mesh_dim: int = 0

    @abstractmethod
    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        """Changes the module in place and returns it."""

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value}" for name, value in vars(self).items()
                          if name not in ("src_data_rank", "mesh_dim"))
        return f"{type(self).__name__}({shown})"

    def _shard(self, module: nn.Module, name: str, mesh: DeviceMesh, placement: Placement) -> None:
        parameter = getattr(module, name, None)
        if parameter is None:
            return
        values = distribute_tensor(parameter.detach(), mesh, _Along(mesh, self.mesh_dim).whole(placement),
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
        desired, given, wanted = self._desired_input(module), self.input_layouts[0], self.output_layouts[0]
        along = _Along(device_mesh, self.mesh_dim)
        is_replicated = desired.is_replicate()

        def prepare_input(owner, inputs, _mesh):
            value = inputs[0]
            if not _C.is_dtensor(value):
                value = along.distributed(value, given, _whole_input(owner, value, given))
            value = along.placed(value, desired, async_op=True)
            if is_replicated:
                _C.reduce_gradient_along(value, along.dim)
            return (value, *inputs[1:])

        def prepare_output(_owner, outputs, _mesh):
            value = along.placed(outputs, wanted, async_op=True)
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
    if placement.dim not in (-1, value.dim() - 1):
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

        along, cut = _Along(device_mesh, self.mesh_dim), self.sequence_sharding[0]

        def prepare_input(owner, inputs, _mesh):
            if not isinstance(inputs[0], torch.Tensor):
                raise InvalidArgument(f"expecting input of {owner} to be a torch.Tensor or DTensor, but "
                                      f"got {inputs[0]}")
            value = along.distributed(inputs[0], cut)
            return (along.placed(value, cut, async_op=True), *inputs[1:])

        def prepare_output(_owner, outputs, _mesh):
            return outputs.to_local() if self.use_local_output else outputs

        return distribute_module(module, device_mesh, partition, prepare_input, prepare_output)


def _as_tuple(layouts: Layouts):
    return (layouts,) if isinstance(layouts, Placement) else layouts


def _prepared(value: Any, along: _Along, layout: Optional[Placement],
              desired: Optional[Placement], use_local: bool) -> Any:
    if layout is None:
        return value
    value = along.distributed(value, layout)
    if desired is not None:
        value = along.placed(value, desired)
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
        along = _Along(device_mesh, self.mesh_dim)
        module.register_forward_pre_hook(
            lambda _, inputs, kwargs: (self._inputs(inputs, along), self._kwargs(kwargs, along)),
            with_kwargs=True)
        return module

    def _inputs(self, inputs, along):
        if self.input_layouts is None:
            return inputs
        if len(inputs) != len(self.input_layouts):
            raise InvalidArgument("module inputs and input_layouts should have same length!")
        return tuple(_prepared(value, along, layout, desired, self.use_local_output) for
                     value, layout, desired in zip(inputs, self.input_layouts,
                                                   self.desired_input_layouts))

    def _kwargs(self, kwargs, along):
        return {name: _prepared(value, along, self.input_kwarg_layouts.get(name),
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
        along = _Along(device_mesh, self.mesh_dim)
        module.register_forward_hook(lambda _, __, outputs: self._outputs(outputs, along))
        return module

    def _outputs(self, outputs, along):
        values = outputs if isinstance(outputs, tuple) else (outputs,)
        if len(values) != len(self.output_layouts):
            raise InvalidArgument("module outputs and output_layouts should have same length!")
        prepared = tuple(_prepared(value, along, layout, desired, self.use_local_output) for
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
        for part in (self.prepare_module_input, self.prepare_module_output):
            part.mesh_dim = self.mesh_dim
            part._apply(module, device_mesh)
        return module
