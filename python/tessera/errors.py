"""What tessera raises.

The classes are also those that callers of `torch.distributed.tensor` catch: a wrong call is a
`ValueError`, a `RuntimeError` and an `AssertionError` at once, because PyTorch raises sometimes this and
sometimes that for the same kind of mistake.

Errors in an operation on DTensors (`x @ w`) come through torch, which raises all of them as
`RuntimeError`, with the same text.
"""

__all__ = [
    "CommError", "Error", "InternalError", "InvalidArgument", "NotSupported", "UnknownAttribute",
    "UnknownDim", "UnknownName", "WrongKind",
]


class Error(RuntimeError):
    """Base of everything that tessera raises on purpose."""


class InvalidArgument(Error, ValueError, AssertionError):
    """The caller passed something that cannot be meant; nothing was changed and no byte has moved."""


class UnknownName(InvalidArgument, KeyError):
    """A name that a mesh does not have, or no name where one is needed."""

    # KeyError would show the text in quotes.
    __str__ = Exception.__str__


class UnknownDim(InvalidArgument, IndexError):
    """A dim that a tensor or a mesh does not have."""


class NotSupported(InvalidArgument, NotImplementedError):
    """Something that makes sense but is not there."""


class UnknownAttribute(InvalidArgument, AttributeError):
    """A parameter or submodule that a module does not have."""


class WrongKind(InvalidArgument, TypeError):
    """An object of another class than those that are allowed."""


class CommError(Error):
    """A communication failed: ranks called different things, or one is gone or did not come in time.

    Has `rank` (who raises), `group`, `operation` and `elapsed` (in seconds). A group that failed stays
    failed.
    """

    rank: int
    group: str
    operation: str
    elapsed: float


class InternalError(Error):
    """An invariant of tessera itself does not hold: a bug of ours, please report the text."""
