"""Files that are fetched once and kept on the disk, up to a limit; those not used for longest go first."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import structlog
from servicekit.errors import Unavailable

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Entry:
    path: Path
    size: int
    users: int = 0
    there: bool = False
    fetching: asyncio.Lock = field(default_factory=asyncio.Lock)


class FileCache:
    """Files by name; what a name holds never changes.

    Args:
        directory: Its own; it is empty.
        limit: Most bytes on the disk. A single file may be larger, while it is used.
    """

    def __init__(self, directory: Path, limit: int) -> None:
        self._directory = directory
        self._limit = limit
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._number = 0

    @asynccontextmanager
    async def file(self, name: str, size: int, fetch: Callable[[Path], Awaitable[None]]) -> AsyncIterator[Path]:
        """The file, which stays until the block is left.

        Args:
            name: Names its content.
            size: Its bytes.
            fetch: Writes it, where it is not there. Its errors come through, and nothing is kept then.

        Raises:
            Unavailable: The disk is full, with files that are being used.
        """
        entry = self._enter(name, size)
        try:
            # One fetches, the others wait.
            async with entry.fetching:
                if not entry.there:
                    await self._fetch(entry, fetch)
            yield entry.path
        finally:
            entry.users -= 1
            if not entry.there and not entry.users:
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
            raise Unavailable("There is no room to read the document.", retry_after=5) from error
        entry.there = True

    def _make_room(self, size: int) -> None:
        """Removes unused files until so many bytes more are within the limit.

        Raises:
            Unavailable: What is used leaves no room.
        """
        used = sum(entry.size for entry in self._entries.values())
        for name, entry in list(self._entries.items()):
            if used + size <= self._limit:
                return
            if not entry.users:
                self._drop(name, entry)
                used -= entry.size
        if size and used and used + size > self._limit:
            raise Unavailable("Too many documents are being read at once.", retry_after=5)

    def _drop(self, name: str, entry: _Entry) -> None:
        del self._entries[name]
        entry.path.unlink(missing_ok=True)
