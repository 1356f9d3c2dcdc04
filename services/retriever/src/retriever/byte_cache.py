"""A cache with a bound in bytes, which forgets first what was read longest ago."""

from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_ENTRY_BYTES = 200
"""What an entry takes besides its content: the key, two places in the table, and the size."""


class ByteCache(Generic[K, V]):
    """Values by key. Used by one thread.

    Args:
        most_bytes: Of all entries together.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._entries: dict[K, tuple[V, int]] = {}
        self.size_bytes = 0

    def get(self, key: K) -> V | None:
        """Return the value of a key; None: it is not known."""
        found = self._entries.pop(key, None)
        if found is None:
            return None
        self._entries[key] = found  # the latest
        return found[0]

    def put(self, key: K, value: V, size_bytes: int) -> None:
        """Keep a value that takes so many bytes; one that is larger than the whole cache is not kept."""
        self.remove(key)
        size = size_bytes + _ENTRY_BYTES
        if size > self._most_bytes:
            return
        while self.size_bytes + size > self._most_bytes:
            self.remove(next(iter(self._entries)))
        self._entries[key] = value, size
        self.size_bytes += size

    def remove(self, key: K) -> None:
        """Forget a key, if it is known."""
        found = self._entries.pop(key, None)
        if found is not None:
            self.size_bytes -= found[1]

    def clear(self) -> None:
        """Forget everything."""
        self._entries.clear()
        self.size_bytes = 0
