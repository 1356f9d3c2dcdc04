"""Snapshots of folders, to find changed and deleted files."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from causeway.cli.ingesting import Source, each_source
from watchfiles import awatch

_POLL_SECONDS = 2.0
_QUIET_MILLISECONDS = 400

Mark = tuple[int, int]
"""A file's length and its modification time in nanoseconds; if both are equal, the content is the same."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The files at one moment, by name."""

    sources: Mapping[str, Source]
    marks: Mapping[str, Mark]

    @classmethod
    def of(cls, paths: Sequence[Path]) -> "Snapshot":
        """Return the current files. Files that disappear or cannot be read are omitted."""
        sources: dict[str, Source] = {}
        marks: dict[str, Mark] = {}
        for source in each_source(path for path in paths if path.exists()):
            with contextlib.suppress(OSError):
                state = source.path.stat()
                sources[source.name], marks[source.name] = source, (state.st_size, state.st_mtime_ns)
        return cls(sources, marks)

    def changed_since(self, marks: Mapping[str, Mark]) -> list[Source]:
        """Return new and changed files, except empty ones, which are still being written."""
        return [
            source
            for name, source in self.sources.items()
            if self.marks[name] != marks.get(name) and self.marks[name][0]
        ]


async def changes(paths: Sequence[Path], *, poll: float = 0) -> AsyncIterator[None]:
    """Yield at the start and whenever something may have changed below the paths.

    Args:
        paths: Files and directories.
        poll: Seconds between checks, for file systems without change notices; 0: use notices. If notices do not
            work (too many folders for the system's limit), it checks periodically.
    """
    yield
    if not poll:
        folders = {path if path.is_dir() else path.absolute().parent for path in paths}
        try:
            async for _ in awatch(
                *folders, debounce=_QUIET_MILLISECONDS, recursive=True, ignore_permission_denied=True
            ):
                yield
        except (OSError, RuntimeError):
            poll = _POLL_SECONDS
    while True:
        await asyncio.sleep(poll)
        yield
