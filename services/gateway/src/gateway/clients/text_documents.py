"""Submit texts to ingest over NATS: one object and one job per request. A key-value bucket has the job's result."""

import asyncio
import hashlib
import io
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import BinaryIO, cast

from causeway.ingest.v1 import ingest_pb2
from google.protobuf import proto  # type: ignore[attr-defined]  # missing in the stubs
from grpc import StatusCode
from servicekit import errors, keys
from servicekit.deadline import Deadline
from servicekit.nats import IngestTransport
from servicekit.original_store import OriginalStore
from servicekit.principal import Principal

from gateway.clients.backlog import Backlog, enqueue, queued_state
from gateway.clients.ingest import QUEUE, job_of, read_job
from gateway.clients.nats_calls import call_nats
from gateway.domain.documents import ENDED, Job
from gateway.domain.text_documents import TextDocument

_MAX_MEMORY_BYTES = 1024 * 1024
_FIRST_PAUSE, _MAX_PAUSE = 0.01, 0.25


class NatsTexts:
    """`ports.index_management.Texts` over JetStream.

    Args:
        transport: Returns the streams and buckets, or raises `Unavailable` while NATS is unavailable.
        originals: Stores the texts.
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

    async def submit(
        self,
        principal: Principal,
        index: str,
        documents: Sequence[TextDocument],
        deadline: Deadline,
        *,
        existing_only: bool = False,
    ) -> Job:
        """See `ports.index_management.Texts`. Store the texts, then the job's state, then the job."""
        keys.index_name(index)
        transport = await self._transport()
        job_id = uuid.uuid4().hex
        object_name = keys.texts_object(principal.tenant, job_id)
        state = queued_state(principal, job_id, index, progress=ingest_pb2.Progress(documents_total=len(documents)))

        async def send(batch: "_Batch") -> None:
            lane = await self._backlog.lane(transport, principal.tenant)
            await self._originals.put(object_name, batch.file)
            message = ingest_pb2.IngestJob(
                job_id=job_id,
                principal=principal.to_proto(),
                index=index,
                object_name=object_name,
                texts=ingest_pb2.TextBatch(
                    count=len(documents),
                    size_bytes=batch.size,
                    sha256=batch.digest.hexdigest(),
                    existing_only=existing_only,
                ),
            )
            await enqueue(transport, lane, message, state)

        # Write a large batch to disk, because a copy in memory would double the memory of the request's texts.
        with tempfile.SpooledTemporaryFile(_MAX_MEMORY_BYTES) as file:
            # Write in a thread, because many texts would delay all running answers.
            batch = await asyncio.to_thread(_Batch, cast("BinaryIO", file), documents)
            await call_nats(send(batch), deadline, QUEUE)
        return job_of(state)

    async def finished(self, principal: Principal, job: Job, deadline: Deadline) -> Job:
        """See `ports.index_management.Texts`. The call polls, because polling survives a restart of the broker."""
        pause = _FIRST_PAUSE
        while True:
            remaining = deadline.at - time.monotonic()
            if remaining <= 0:
                return job
            await asyncio.sleep(min(pause, remaining))
            pause = min(pause * 1.5, _MAX_PAUSE)
            try:
                job = await read_job(await self._transport(), principal, job.id, Deadline.after(5))
            except errors.Unavailable:
                continue  # the accepted job continues when the broker is available again
            if job.state in ENDED:
                break
        if job.state == "failed":
            raise errors.build(job.error_reason, StatusCode.INTERNAL, job.error_message, {})
        if job.state == "cancelled":
            raise errors.Conflict("The job was cancelled. Send the documents again.", resource=job.id)
        return job


class _Batch:
    """Writes the object of a job: the documents in order, each preceded by its length.

    Args:
        file: An empty file. It remains open, at its start.
        documents: The documents.
    """

    def __init__(self, file: BinaryIO, documents: Sequence[TextDocument]) -> None:
        self.file = file
        self.digest = hashlib.sha256()
        self.size = 0
        for document in documents:
            message = ingest_pb2.TextDocument(
                document_id=document.document_id,
                text=document.text,
                metadata_json=document.metadata_json,
                suffix=document.suffix,
            )
            piece = io.BytesIO()
            proto.serialize_length_prefixed(message, piece)
            self.digest.update(piece.getbuffer())
            self.size += file.write(piece.getbuffer())
        file.seek(0)
