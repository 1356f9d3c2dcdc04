"""Restores a backup into an empty installation."""

from collections.abc import Callable, Sequence

from causeway.cli.backup import pause, streams
from causeway.cli.backup.folder import Contents, Folder
from causeway.cli.backup.installation import Installation
from causeway.cli.errors import CommandError
from causeway.ingest.v1 import ingest_pb2
from nats.aio.client import Client
from nats.js.api import StreamInfo
from nats.js.errors import BucketNotFoundError, NotFoundError
from servicekit import key_value, keys

_WRITTEN_AT_START = frozenset({f"KV_{keys.CONTENT_KEYS_BUCKET}"})
"""Streams to which the gateways of a new installation write before the first request."""

_ENDED = frozenset(
    (
        ingest_pb2.JOB_STATE_SUCCEEDED,
        ingest_pb2.JOB_STATE_FAILED,
        ingest_pb2.JOB_STATE_UNCHANGED,
        ingest_pb2.JOB_STATE_CANCELLED,
    )
)


async def restore(
    installation: Installation, folder: Folder, replicas: int | None, report: Callable[[str], None]
) -> Contents:
    """Restore a backup into an empty installation.

    Args:
        installation: The target; its gateways and workers must not run.
        folder: The backup.
        replicas: Number of replicas in NATS; None: the number in the backup.
        report: Called with progress messages.

    Raises:
        UsageError: The folder has no complete backup; nothing changed.
        CommandError: The installation is not empty or workers run; nothing changed. Or the restore failed.
    """
    contents = folder.read()
    broker = installation.broker
    existing = await streams.list_streams(broker)
    full = [name for stream in existing if stream.state.messages and (name := stream.config.name or "")]
    if full := [name for name in full if name not in _WRITTEN_AT_START]:
        raise CommandError(
            f"the installation is not empty: NATS has messages in {', '.join(full)}; nothing was changed"
        )
    if names := await installation.indexes.names():
        raise CommandError(f"the installation is not empty: it has the index '{names[0][1]}'; nothing was changed")
    if installation.may_have_workers and await pause.has_waiting_workers(broker):
        raise CommandError("ingest workers are running: stop ingest and the gateways first; nothing was changed")
    if await _has_gateways(broker, existing):
        raise CommandError("gateways are running: stop ingest and the gateways first; nothing was changed")
    for index in contents.indexes:
        await installation.indexes.restore(index, folder)
        report(f"index {index.name} of tenant {index.tenant}")
    saved = {stream.name for stream in contents.streams}
    await streams.remove(broker, [name for stream in existing if (name := stream.config.name or "") in saved])
    for stream in contents.streams:
        await streams.restore(broker, stream, folder, replicas)
        report(f"{stream.name}: {stream.messages} messages")
    if removed := await _remove_unqueued(broker):
        report(f"{removed} jobs were accepted during the backup; the backup does not contain them")
    return contents


async def _has_gateways(client: Client, existing: Sequence[StreamInfo]) -> bool:
    """Return whether a gateway watches a stream of `_WRITTEN_AT_START`. It would create a removed stream again."""
    jetstream = client.jetstream(timeout=30)
    watched = [name for stream in existing if (name := stream.config.name or "") in _WRITTEN_AT_START]
    for name in watched:
        if any(consumer.push_bound for consumer in await jetstream.consumers_info(name)):
            return True
    return False


async def _remove_unqueued(client: Client) -> int:
    """Delete the states of unfinished jobs that are not in the queue; no worker would get these jobs."""
    jetstream = client.jetstream(timeout=30)
    try:
        bucket = await jetstream.key_value(keys.JOBS_BUCKET)
        queue = (await jetstream.stream_info(keys.INGEST_STREAM)).state
    except (BucketNotFoundError, NotFoundError):
        return 0
    queued: set[str] = set()
    sequence = queue.first_seq
    while queue.messages and sequence <= queue.last_seq:
        try:
            message = await jetstream.get_msg(keys.INGEST_STREAM, sequence, next=True, subject=keys.INGEST_SUBJECTS)
        except NotFoundError:
            break
        queued.add(ingest_pb2.IngestJob.FromString(message.data or b"").job_id)
        sequence = (message.seq or sequence) + 1
    removed = 0
    for entry in await key_value.current_entries(bucket):
        job = ingest_pb2.Job.FromString(entry.value or b"")
        if job.state not in _ENDED and job.job_id not in queued:
            await bucket.purge(entry.key)
            removed += 1
    return removed
