"""A least-recently-used cache whose size is limited in bytes."""

from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_ENTRY_BYTES = 200
"""Overhead of an entry in bytes: the key, two slots of the table, and the number of bytes."""


class ByteCache(Generic[K, V]):
    """A cache of values by key. It is not thread-safe.

    Args:
        max_bytes: Limit of the total size of all entries.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._entries: dict[K, tuple[V, int]] = {}
        self.size_bytes = 0

    def get(self, key: K) -> V | None:
        """Return the value of a key, or None if it is not cached."""
        found = self._entries.pop(key, None)
        if found is None:
            return None
        self._entries[key] = found  # moves it to the end
        return found[0]

    def put(self, key: K, value: V, size_bytes: int) -> None:
        """Cache a value of this size. A value that is larger than the whole cache is not cached."""
        self.remove(key)
        size = size_bytes + _ENTRY_BYTES
        if size > self._max_bytes:
            return
        while self.size_bytes + size > self._max_bytes:
            self.remove(next(iter(self._entries)))
        self._entries[key] = value, size
        self.size_bytes += size

    def remove(self, key: K) -> None:
        """Remove a key if it is cached."""
        found = self._entries.pop(key, None)
        if found is not None:
            self.size_bytes -= found[1]
