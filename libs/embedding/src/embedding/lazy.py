"""Values that are created on first use."""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Lazy(Generic[T]):
    """Creates a value on first use, once for all threads.

    Args:
        make: Returns the value. If it raises an error, the caller gets this error, and the next call tries again.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._values: list[T] = []

    def __call__(self) -> T:
        """Return the value."""
        if not self._values:
            with self._lock:
                if not self._values:
                    self._values.append(self._make())
        return self._values[0]
