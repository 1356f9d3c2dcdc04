"""Cache fetched files on disk, up to a limit. The cache removes the least recently used files first."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from servicekit.errors import Unavailable


@dataclass(slots=True)
class _Entry:
    path: Path
    size: int
    users: int = 0
    fetched: bool = False
    fetching: asyncio.Lock = field(default_factory=asyncio.Lock)


class FileCache:
    """Caches files by name. A file never changes after it was fetched.

    Args:
        directory: An empty directory, which only this cache uses.
        limit: The maximum number of bytes on disk. A single file in use may be larger.
    """

    def __init__(self, directory: Path, limit: int) -> None:
        self._directory = directory
        self._limit = limit
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._number = 0

    @asynccontextmanager
    async def file(self, name: str, size: int, fetch: Callable[[Path], Awaitable[None]]) -> AsyncIterator[Path]:
        """Provide the file until the block ends.

        Args:
            name: The name of the file.
            size: The size of the file in bytes.
            fetch: The function that writes a missing file. The cache passes its error on, and then keeps no file.

        Raises:
            Unavailable: The files in use leave no space in the cache, or the disk is full.
        """
        entry = self._enter(name, size)
        try:
            # One caller fetches the file, while the other callers wait.
            async with entry.fetching:
                if not entry.fetched:
                    await self._fetch(entry, fetch)
            yield entry.path
        finally:
            entry.users -= 1
            if not entry.fetched and not entry.users:
                self._drop(name, entry)
            self._make_room(0)

    def _enter(self, name: str, size: int) -> _Entry:
        entry = self._entries.get(name)
        if entry is None:
            self._make_room(size)
            self._number += 1
            entry = self._entries[name] = _Entry(self._directory / str(self._number), size)
        entry.users += 1
        self._entries.move_to_end(name)
        return entry

    async def _fetch(self, entry: _Entry, fetch: Callable[[Path], Awaitable[None]]) -> None:
        try:
            await fetch(entry.path)
        except OSError as error:
            raise Unavailable("The gateway has no disk space for the document.", retry_after=5) from error
        entry.fetched = True

    def _make_room(self, size: int) -> None:
        """Remove unused files until ``size`` more bytes fit the limit.

        Raises:
            Unavailable: The files in use leave no space.
        """
        used = sum(entry.size for entry in self._entries.values())
        for name, entry in list(self._entries.items()):
            if used + size <= self._limit:
                return
            if not entry.users:
                self._drop(name, entry)
                used -= entry.size
        if size and used and used + size > self._limit:
            raise Unavailable("Too many documents are being read concurrently. Try again shortly.", retry_after=5)

    def _drop(self, name: str, entry: _Entry) -> None:
        del self._entries[name]
        entry.path.unlink(missing_ok=True)
