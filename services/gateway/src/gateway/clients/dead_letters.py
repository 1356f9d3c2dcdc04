"""List dead letters, the jobs that ingest gave up, and queue them again. A separate stream contains them."""

import contextlib
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from urllib.parse import unquote

from causeway.ingest.v1 import ingest_pb2
from google.protobuf.message import DecodeError
from nats.aio.msg import Msg
from nats.js.errors import KeyNotFoundError, NotFoundError
from servicekit import key_value, keys
from servicekit.deadline import Deadline
from servicekit.nats import GENERATION, IngestTransport
from servicekit.principal import Principal

from gateway.clients.backlog import Backlog
from gateway.clients.ingest import QUEUE
from gateway.clients.nats_calls import call_nats
from gateway.clients.reverse_reader import newest_first
from gateway.ports.jobs import DeadLetter, DeadPage, Replay

_JOB_ID = "Causeway-Job-Id"
_COPIED_HEADERS = ("traceparent", "tracestate", GENERATION)


class DeadLetters:
    """The dead letters of tenants.

    Args:
        transport: Returns the streams and buckets, or raises `Unavailable` while NATS is unavailable.
        backlog: The limits of waiting jobs.
    """

    def __init__(self, transport: Callable[[], Awaitable[IngestTransport]], backlog: Backlog) -> None:
        self._transport = transport
        self._backlog = backlog

    async def page(self, principal: Principal, count: int, before: int, deadline: Deadline) -> DeadPage:
        """Return the dead letters before a position in the stream, newest first; see `ports.jobs.Jobs.dead`."""
        transport = await self._transport()

        async def read() -> DeadPage:
            found: list[DeadLetter] = []
            last = 0
            async with contextlib.aclosing(_letters(transport, principal, before)) as messages:
                async for message in messages:
                    if len(found) == count:
                        return DeadPage(tuple(found), str(last))
                    last = message.metadata.sequence.stream
                    found.append(_letter(message))
            return DeadPage(tuple(found))

        return await call_nats(read(), deadline, QUEUE)

    async def replay(self, principal: Principal, job_ids: Sequence[str] | None, deadline: Deadline) -> Replay:
        """See `ports.jobs.Jobs.replay`."""
        transport = await self._transport()
        selected = None if job_ids is None else set(job_ids)
        replayed: dict[str, None] = {}

        async def send_all() -> None:
            async with contextlib.aclosing(_letters(transport, principal)) as messages:
                async for message in messages:
                    job_id = (message.headers or {}).get(_JOB_ID, "")
                    if not job_id or (selected is not None and job_id not in selected):
                        continue
                    if await self._send(transport, principal, message, job_id):
                        replayed[job_id] = None
                    if selected is not None and len(replayed) == len(selected):
                        return

        await call_nats(send_all(), deadline, QUEUE, max_seconds=math.inf)
        return Replay(tuple(replayed), tuple(job_id for job_id in job_ids or () if job_id not in replayed))

    async def _send(self, transport: IngestTransport, principal: Principal, message: Msg, job_id: str) -> bool:
        """Write the state of a letter's job, enqueue the job, and delete the letter. Return whether this succeeded.

        The job keeps its generation, so that it does not replace a newer version of the document.
        """
        try:
            job = ingest_pb2.IngestJob.FromString(message.data)
        except DecodeError:
            return False  # the invalid job would fail again
        lane = await self._backlog.lane(transport, principal.tenant)
        if not await _reset(transport, keys.job_key(principal.tenant, job_id), job):
            return False
        position = message.metadata.sequence.stream
        headers: Mapping[str, str] = message.headers or {}
        await transport.jetstream.publish(
            keys.ingest_subject(lane, principal.tenant, job.index),
            message.data,
            headers={
                "Nats-Msg-Id": f"{job_id}.{position}",
                _JOB_ID: job_id,
                **{name: headers[name] for name in _COPIED_HEADERS if name in headers},
            },
        )
        with contextlib.suppress(
            NotFoundError
        ):  # a concurrent replay deleted the letter; NATS drops the duplicate job
            await transport.jetstream.delete_msg(keys.INGEST_DEAD_STREAM, position)
        return True


def _letters(transport: IngestTransport, principal: Principal, before: int = 0) -> AsyncGenerator[Msg, None]:
    subjects = keys.ingest_dead_subjects_of(principal.tenant)
    return newest_first(transport.jetstream, keys.INGEST_DEAD_STREAM, subjects, before)


async def _reset(transport: IngestTransport, key: str, job: ingest_pb2.IngestJob) -> bool:
    """Reset the record of a failed job. Return False if the job has not failed."""
    state = ingest_pb2.Job(
        job_id=job.job_id,
        principal=job.principal,
        index=job.index,
        document_id=job.document.document_id,
        sourcefile=job.document.sourcefile,
        progress=ingest_pb2.Progress(documents_total=job.texts.count),
    )
    state.created_at.GetCurrentTime()
    revision = 0
    try:
        entry = await transport.jobs.get(key)
    except KeyNotFoundError:
        pass  # the record expires earlier than the letter
    else:
        former = ingest_pb2.Job.FromString(entry.value or b"")
        # A queued job without an attempt was reset by an earlier replay, which failed before it sent the job.
        started = former.attempt or former.state != ingest_pb2.JOB_STATE_QUEUED
        if started and former.state != ingest_pb2.JOB_STATE_FAILED:
            return False
        state.created_at.CopyFrom(former.created_at)
        state.trace_id, state.committing = former.trace_id, former.committing
        revision = entry.revision or 0
    state.state = ingest_pb2.JOB_STATE_QUEUED
    state.updated_at.GetCurrentTime()
    serialized = state.SerializeToString()
    write = (
        transport.jobs.update(key, serialized, last=revision)
        if revision
        else transport.jobs.create(key, serialized)
    )
    return await key_value.try_write(write)


def _letter(message: Msg) -> DeadLetter:
    headers = message.headers or {}
    try:
        job = ingest_pb2.IngestJob.FromString(message.data)
    except DecodeError:
        job = ingest_pb2.IngestJob()
    text = headers.get("Causeway-Message", "")
    attempts = headers.get("Causeway-Attempts", "")
    return DeadLetter(
        job_id=headers.get(_JOB_ID, ""),
        index=job.index,
        document_id=job.document.document_id,
        sourcefile=job.document.sourcefile,
        reason=headers.get("Causeway-Reason", ""),
        message=unquote(text),
        attempts=int(attempts) if attempts.isdecimal() else 0,
        died_at=message.metadata.timestamp.isoformat().replace("+00:00", "Z"),
    )
