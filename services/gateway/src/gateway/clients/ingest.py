"""Submit files to ingest over NATS: store the originals, enqueue the jobs, read the states of jobs."""

import asyncio
import hashlib
import io
import uuid
from collections.abc import Awaitable, Callable

from causeway.ingest.v1 import ingest_pb2
from causeway.retriever.v1 import document_pb2
from nats.js.errors import KeyNotFoundError
from nats.js.kv import KeyValue
from servicekit import keys
from servicekit.deadline import Deadline
from servicekit.errors import NotFound
from servicekit.nats import IngestTransport
from servicekit.original_store import OriginalStore
from servicekit.principal import Principal

from gateway.clients.backlog import Backlog, enqueue, queued_state
from gateway.clients.nats_calls import call_nats
from gateway.domain.documents import AccessChange, Job, JobWarning, Upload
from gateway.domain.text_documents import TextOutcome

QUEUE = "The ingest queue"
"""The name of the queue in messages."""
_MAX_INLINE_HASH_BYTES = 64 * 1024
"""The maximum number of bytes that the event loop hashes. A thread hashes larger files."""
_MAX_CONTENT_BYTES = 4 * 1024
"""The maximum size in bytes of an original that its job's message contains. The limit keeps the queue small."""
STATES = {name.removeprefix("JOB_STATE_").lower(): number for name, number in ingest_pb2.JobState.items() if number}
"""The protobuf number of each state."""
_NAMES = {number: name for name, number in STATES.items()}
_OUTCOMES = {
    ingest_pb2.TEXT_OUTCOME_STORED: TextOutcome.STORED,
    ingest_pb2.TEXT_OUTCOME_UNCHANGED: TextOutcome.UNCHANGED,
    ingest_pb2.TEXT_OUTCOME_NOT_FOUND: TextOutcome.NOT_FOUND,
    ingest_pb2.TEXT_OUTCOME_SUPERSEDED: TextOutcome.SUPERSEDED,
}


class NatsIngest:
    """`ports.documents.Ingest` over JetStream.

    Args:
        transport: Returns the streams and buckets, or raises `Unavailable` while NATS is unavailable.
        originals: Stores the uploads.
        backlog: The limits of waiting jobs.
    """

    def __init__(
        self,
        transport: Callable[[], Awaitable[IngestTransport]],
        originals: OriginalStore,
        backlog: Backlog | None = None,
    ) -> None:
        self._transport = transport
        self._backlog = backlog or Backlog()
        self._originals = originals

    async def submit(self, principal: Principal, upload: Upload, deadline: Deadline) -> Job:
        """See `ports.documents.Ingest`.

        The call first stores the original, then the job's state, then the job. A failure between these steps leaves
        an unused original, or a state that never changes. The client then receives an error and no job.
        """
        keys.index_name(upload.index)
        transport = await self._transport()
        job_id = uuid.uuid4().hex
        sha256 = "" if upload.url else await _sha256(upload.content)
        document = document_pb2.Document(
            document_id=upload.document_id or keys.document_id(upload.sourcefile),
            sourcefile=upload.sourcefile,
            sha256=sha256,
            size_bytes=len(upload.content),
            metadata_json=upload.metadata_json,
            access=document_pb2.AccessControl(oids=upload.oids, groups=upload.groups),
            category=upload.category,
            has_pictures=upload.pictures,
        )
        object_name = keys.original_object(principal.tenant, upload.index, job_id)
        state = queued_state(
            principal, job_id, upload.index, document_id=document.document_id, sourcefile=document.sourcefile
        )
        message = ingest_pb2.IngestJob(
            job_id=job_id,
            principal=principal.to_proto(),
            index=upload.index,
            document=document,
            object_name=object_name,
            url=upload.url,
            content=upload.content if len(upload.content) <= _MAX_CONTENT_BYTES else b"",
        )

        async def send() -> None:
            lane = await self._backlog.lane(transport, principal.tenant)
            if not upload.url:
                await self._originals.put(object_name, io.BytesIO(upload.content))
            await enqueue(transport, lane, message, state)

        await call_nats(send(), deadline, QUEUE)
        return job_of(state)

    async def change_access(self, principal: Principal, change: AccessChange, deadline: Deadline) -> Job:
        """See `ports.documents.Ingest`."""
        keys.index_name(change.index)
        transport = await self._transport()
        job_id = uuid.uuid4().hex
        document = document_pb2.Document(
            document_id=change.document_id,
            sourcefile=change.sourcefile,
            access=document_pb2.AccessControl(oids=change.oids, groups=change.groups),
        )
        state = queued_state(
            principal, job_id, change.index, document_id=change.document_id, sourcefile=change.sourcefile
        )
        message = ingest_pb2.IngestJob(
            job_id=job_id, principal=principal.to_proto(), index=change.index, document=document, access_only=True
        )

        async def send() -> None:
            lane = await self._backlog.lane(transport, principal.tenant)
            await enqueue(transport, lane, message, state)

        await call_nats(send(), deadline, QUEUE)
        return job_of(state)

    async def job(self, principal: Principal, job_id: str, deadline: Deadline) -> Job:
        """See `ports.documents.Ingest`."""
        return await read_job(await self._transport(), principal, job_id, deadline)


async def _sha256(content: bytes) -> str:
    if len(content) <= _MAX_INLINE_HASH_BYTES:
        return hashlib.sha256(content).hexdigest()
    # In a thread, because a large file would delay all running answers.
    return await asyncio.to_thread(lambda: hashlib.sha256(content).hexdigest())


async def job_entry(
    transport: IngestTransport, principal: Principal, job_id: str, deadline: Deadline
) -> KeyValue.Entry:
    """Return the stored record of a job.

    Raises:
        NotFound: The tenant has no such job.
        Unavailable: NATS is unavailable.
    """
    try:
        return await call_nats(transport.jobs.get(keys.job_key(principal.tenant, job_id)), deadline, QUEUE)
    except KeyNotFoundError:
        raise NotFound(f"No such job: {job_id!r}.", resource=job_id) from None


async def read_job(transport: IngestTransport, principal: Principal, job_id: str, deadline: Deadline) -> Job:
    """Return a job. Raises the errors of `job_entry`."""
    entry = await job_entry(transport, principal, job_id, deadline)
    return job_of(ingest_pb2.Job.FromString(entry.value or b""))


def job_of(message: ingest_pb2.Job) -> Job:
    """Convert a job's record to the domain type."""
    progress = message.progress
    return Job(
        id=message.job_id,
        state=_NAMES.get(message.state, "queued"),
        index=message.index,
        document_id=message.document_id,
        sourcefile=message.sourcefile,
        created_at=message.created_at.ToJsonString(),
        updated_at=message.updated_at.ToJsonString(),
        trace_id=message.trace_id,
        attempt=message.attempt,
        progress={
            "pages_done": progress.pages_done,
            "pages_total": progress.pages_total,
            "chunks_done": progress.chunks_done,
            "chunks_total": progress.chunks_total,
            **_documents(progress),
        },
        error_reason=message.error.reason,
        error_message=message.error.message,
        outcomes=tuple(_OUTCOMES[outcome] for outcome in message.outcomes if outcome in _OUTCOMES),
        waiting_since=message.waiting_since.ToJsonString() if message.HasField("waiting_since") else "",
        fetching=progress.fetching,
        warnings=tuple(
            JobWarning(warning.reason, warning.message, warning.page, warning.part) for warning in message.warnings
        ),
        warning_count=message.warning_count,
        given_up=message.given_up,
    )


def _documents(progress: ingest_pb2.Progress) -> dict[str, int]:
    # Only a job for texts has several documents.
    if not progress.documents_total:
        return {}
    return {"documents_done": progress.documents_done, "documents_total": progress.documents_total}
