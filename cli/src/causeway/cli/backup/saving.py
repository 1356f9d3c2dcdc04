"""Writes a backup. The order ensures that each document is either complete or missing (docs/backup.md)."""

from collections.abc import Callable
from datetime import UTC, datetime

from causeway.cli.backup import pause, streams
from causeway.cli.backup.folder import Contents, Folder, SavedIndex, SavedStream
from causeway.cli.backup.installation import Installation
from servicekit import keys
from servicekit.errors import NotFound

_FIRST = (
    keys.INGEST_STREAM,
    f"OBJ_{keys.ORIGINALS_BUCKET}",
    f"KV_{keys.PICTURES_BUCKET}",
    f"KV_{keys.JOBS_BUCKET}",
)
"""The queue is saved before the originals, because an original exists before its job. The states of jobs are saved
after the queue. So a job that is cancelled between these two steps is also cancelled in the backup.
"""


async def save(
    installation: Installation, folder: Folder, max_wait: float, report: Callable[[str], None]
) -> Contents:
    """Write a backup.

    Args:
        installation: The source.
        folder: An empty target folder.
        max_wait: Maximum seconds to wait for the running jobs.
        report: Called with progress messages.

    Raises:
        CommandError: The backup failed; the folder has no complete backup.
    """
    began_at = datetime.now(UTC)
    saved: list[SavedStream] = []
    indexes: list[SavedIndex] = []
    folder.begin()

    async def add(name: str) -> None:
        stream = await streams.save(installation.broker, name, folder)
        saved.append(stream)
        report(f"{name}: {stream.messages} messages")

    existing = [stream.config.name or "" for stream in await streams.list_streams(installation.broker)]
    async with pause.paused(installation.broker, max_wait) as idle:
        if not idle:
            report("some jobs are still running; in the backup they wait in the queue")
        for name in _FIRST:
            if name in existing:
                await add(name)
        for number, (tenant, name) in enumerate(await installation.indexes.names(), 1):
            try:
                indexes.append(await installation.indexes.save(tenant, name, folder, f"{number}.index"))
            except NotFound:
                report(f"index {name} of tenant {tenant} was deleted during the backup")
            else:
                report(f"index {name} of tenant {tenant}")
    for name in existing:
        if name not in _FIRST:
            await add(name)
    contents = Contents(created_at=began_at, streams=saved, indexes=indexes)
    folder.end(contents)
    return contents
