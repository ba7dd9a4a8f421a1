"""Context managers around objects of the core that hold while they are alive."""

import threading
from typing import Callable, TypeVar

Manager = TypeVar("Manager", bound="guarding")


class guarding:
    """Makes such an object when entered, and drops it when left: each rank its own, and as often as
    it is entered."""

    def __init__(self, make: Callable[[], object]) -> None:
        self._make = make
        self._alive = threading.local()

    def __enter__(self: Manager) -> Manager:
        self._alive.__dict__.setdefault("guards", []).append(self._make())
        return self

    def __exit__(self, *_: object) -> None:
        self._alive.guards.pop()
