"""Losses of logits that are cut along the classes."""

from .. import _C
from .._guard import guarding

__all__ = ["loss_parallel"]


class loss_parallel(guarding):
    """While entered, makes sure that cross entropies of DTensors on the calling rank are computed
    without gathering the logits: logits that are not cut along the classes are an error, on a mesh of
    more than one rank.

        with loss_parallel():
            loss = torch.nn.functional.cross_entropy(logits, target)
            loss.backward()

    It checks and nothing else. With or without it, logits that are cut along the classes stay where they
    are, and what is sent is a few numbers per sample. Class weights, `ignore_index`, label smoothing,
    every reduction and targets that are probabilities work, on meshes of any number of dims; the
    backward pass may be outside. Targets and weights may be plain tensors that are equal on all ranks.
    """

    def __init__(self) -> None:
        super().__init__(_C.LossParallel)
