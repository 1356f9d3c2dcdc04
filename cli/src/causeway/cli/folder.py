"""Folders as the platform shall have them: what has changed since, what is gone."""

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
"""A file's length, and when it was last written in nanoseconds: as long as these stay, so does its content."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The files at a moment, by name."""

    sources: Mapping[str, Source]
    marks: Mapping[str, Mark]

    @classmethod
    def of(cls, paths: Sequence[Path]) -> "Snapshot":
        """What is there now. What goes while it is looked at is gone, what cannot be read is not there."""
        sources: dict[str, Source] = {}
        marks: dict[str, Mark] = {}
        for source in each_source(path for path in paths if path.exists()):
            with contextlib.suppress(OSError):
                state = source.path.stat()
                sources[source.name], marks[source.name] = source, (state.st_size, state.st_mtime_ns)
        return cls(sources, marks)

    def changed_since(self, marks: Mapping[str, Mark]) -> list[Source]:
        """Files that are new or other than they were; empty ones are still being written."""
        return [
            source
            for name, source in self.sources.items()
            if self.marks[name] != marks.get(name) and self.marks[name][0]
        ]


async def changes(paths: Sequence[Path], *, poll: float = 0) -> AsyncIterator[None]:
    """Wakes whenever something may have changed below the paths, and also at the beginning.

    Args:
        paths: Files and directories.
        poll: Seconds between looks, where the file system gives no notices; 0: it does. Where it turns out that it
            does not (too many folders for the system's limit), looks replace the notices.
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
