"""Detects changed and deleted files, by snapshots of folders and notifications of the file system."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from causeway.cli.ingesting import Source, iterate_sources
from watchfiles import awatch

_POLL_SECONDS = 2.0
_DEBOUNCE_MILLISECONDS = 400

Stamp = tuple[int, int]
"""A file's length and its modification time in nanoseconds. A file with an unchanged stamp counts as unchanged."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The files at one point in time, by name."""

    sources: Mapping[str, Source]
    stamps: Mapping[str, Stamp]

    @classmethod
    def of(cls, paths: Sequence[Path]) -> "Snapshot":
        """Return the current files. Files that disappear or cannot be read are omitted."""
        sources: dict[str, Source] = {}
        stamps: dict[str, Stamp] = {}
        for source in iterate_sources(path for path in paths if path.exists()):
            with contextlib.suppress(OSError):
                state = source.path.stat()
                sources[source.name], stamps[source.name] = source, (state.st_size, state.st_mtime_ns)
        return cls(sources, stamps)

    def changed_since(self, stamps: Mapping[str, Stamp]) -> list[Source]:
        """Return new and changed files."""
        return [source for name, source in self.sources.items() if self.stamps[name] != stamps.get(name)]


async def changes(paths: Sequence[Path], *, poll: float = 0) -> AsyncGenerator[None, None]:
    """Yield at the start, and after each possible change below the paths.

    Args:
        paths: Files and directories.
        poll: Seconds between checks, for file systems without change notifications. 0: use notifications. If they
            fail, for example because the number of folders exceeds the system's limit, check every two seconds.
    """
    if poll:
        yield
    else:
        folders = {path if path.is_dir() else path.absolute().parent for path in paths}
        notifications = awatch(
            *folders, debounce=_DEBOUNCE_MILLISECONDS, recursive=True, ignore_permission_denied=True
        )
        # The watch begins before the caller reads the files, so that it also notices the changes in the meantime.
        next_change = asyncio.ensure_future(anext(notifications))
        await asyncio.sleep(0)
        try:
            while True:
                yield
                await next_change
                next_change = asyncio.ensure_future(anext(notifications))
        except (OSError, RuntimeError):
            poll = _POLL_SECONDS
        finally:
            next_change.cancel()
            await asyncio.gather(next_change, return_exceptions=True)
            await notifications.aclose()
    while True:
        await asyncio.sleep(poll)
        yield
