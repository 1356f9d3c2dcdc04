"""Making a backup, in an order in which each document is in it whole or not at all (docs/backup.md)."""

from collections.abc import Callable
from datetime import UTC, datetime

from causeway.cli.backup import pause, streams
from causeway.cli.backup.folder import Contents, Folder, SavedIndex, SavedStream
from causeway.cli.backup.installation import Installation
from servicekit import keys

_FIRST = (
    keys.INGEST_STREAM,
    f"OBJ_{keys.ORIGINALS_BUCKET}",
    f"KV_{keys.PICTURES_BUCKET}",
    f"KV_{keys.JOBS_BUCKET}",
)
"""The queue before the originals: an original is there before its job. The states of jobs after the queue: a job
that was cancelled meanwhile is cancelled in the backup, too."""


async def save(installation: Installation, folder: Folder, patience: float, say: Callable[[str], None]) -> Contents:
    """Write a backup.

    Args:
        installation: What to save.
        folder: Where to; empty.
        patience: Seconds that jobs which are under way get to come to their end.
        say: Told what is done.

    Raises:
        CommandError: It could not be done; the folder holds no backup then.
    """
    began_at = datetime.now(UTC)
    saved: list[SavedStream] = []
    indexes: list[SavedIndex] = []
    folder.begin()

    async def add(name: str) -> None:
        stream = await streams.save(installation.broker, name, folder)
        saved.append(stream)
        say(f"{name}: {stream.messages} messages")

    there = [each.config.name or "" for each in await streams.stored(installation.broker)]
    async with pause.held(installation.broker, patience) as idle:
        if not idle:
            say("some jobs are still under way; they are in the backup as jobs that wait")
        for name in _FIRST:
            if name in there:
                await add(name)
        for number, (tenant, name) in enumerate(await installation.indexes.names(), 1):
            indexes.append(await installation.indexes.save(tenant, name, folder, f"{number}.index"))
            say(f"index {name} of tenant {tenant}")
    for name in there:
        if name not in _FIRST:
            await add(name)
    contents = Contents(created_at=began_at, streams=saved, indexes=indexes)
    folder.end(contents)
    return contents
