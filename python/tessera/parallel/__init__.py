"""Modules on meshes: tensor parallelism by plans as in `torch.distributed.tensor.parallel`, and batches
that are spread over ranks."""

from ._batches import clip_grad_norm_, data_parallel, fully_shard, no_sync
from ._loss import loss_parallel
from ._plan import parallelize_module
from ._styles import (ColwiseParallel, ParallelStyle, PrepareModuleInput, PrepareModuleInputOutput,
                      PrepareModuleOutput, RowwiseParallel, SequenceParallel)

__all__ = [
    "ColwiseParallel", "ParallelStyle", "PrepareModuleInput", "PrepareModuleInputOutput",
    "PrepareModuleOutput", "RowwiseParallel", "SequenceParallel", "clip_grad_norm_", "data_parallel",
    "fully_shard", "loss_parallel", "no_sync", "parallelize_module",
]
