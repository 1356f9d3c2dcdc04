"""Conversion between proto messages and domain types."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TypedDict

import numpy as np
import numpy.typing as npt
from causeway.ingest.v1 import ingest_pb2
from causeway.retriever.v1 import document_pb2
from google.protobuf import proto  # type: ignore[attr-defined]  # missing in the stubs
from google.protobuf.message import DecodeError
from google.protobuf.timestamp_pb2 import Timestamp
from servicekit import keys
from servicekit.errors import InvalidRequest, UnreadableDocument
from servicekit.principal import Principal

from ingest.domain import (
    AccessJob,
    Chunk,
    Document,
    Failure,
    FileJob,
    Job,
    JobWarning,
    Outcome,
    Progress,
    State,
    Status,
    Text,
    TextsJob,
)

_STATES = {
    State.QUEUED: ingest_pb2.JOB_STATE_QUEUED,
    State.PARSING: ingest_pb2.JOB_STATE_PARSING,
    State.INDEXING: ingest_pb2.JOB_STATE_INDEXING,
    State.SUCCEEDED: ingest_pb2.JOB_STATE_SUCCEEDED,
    State.UNCHANGED: ingest_pb2.JOB_STATE_UNCHANGED,
    State.FAILED: ingest_pb2.JOB_STATE_FAILED,
    State.CANCELLED: ingest_pb2.JOB_STATE_CANCELLED,
}
_FROM_STATES = {number: state for state, number in _STATES.items()}
_OUTCOMES = {
    Outcome.STORED: ingest_pb2.TEXT_OUTCOME_STORED,
    Outcome.UNCHANGED: ingest_pb2.TEXT_OUTCOME_UNCHANGED,
    Outcome.NOT_FOUND: ingest_pb2.TEXT_OUTCOME_NOT_FOUND,
    Outcome.SUPERSEDED: ingest_pb2.TEXT_OUTCOME_SUPERSEDED,
}
_FROM_OUTCOMES = {number: outcome for outcome, number in _OUTCOMES.items()}


def job_from_message(data: bytes, generation: int, trace_id: str) -> Job:
    """Return the job of a queue message.

    Args:
        data: A serialized ``IngestJob``.
        generation: The generation of the job's documents.
        trace_id: Trace of the upload, 32 hex digits; empty without a trace.

    Raises:
        InvalidRequest, Unauthenticated: The message is not a job, or is incomplete.
    """
    try:
        message = ingest_pb2.IngestJob.FromString(data)
    except DecodeError as error:
        raise InvalidRequest("The message is not a job.") from error
    document, texts = message.document, message.texts
    required: dict[str, object] = {"job_id": message.job_id}
    if not message.access_only:
        required["object_name"] = message.object_name
    if message.HasField("texts"):
        required |= {"texts.count": texts.count, "texts.sha256": texts.sha256}
    else:
        required |= {
            "document.document_id": document.document_id,
            "document.sourcefile": document.sourcefile,
        }
        if not message.access_only:
            required["document.sha256"] = document.sha256 or message.url
    for name, value in required.items():
        if not value:
            raise InvalidRequest(f"The job has no {name}.", field=name)
    common = _Common(
        job_id=message.job_id,
        principal=Principal.from_proto(message.principal),
        index=keys.index_name(message.index),
        object_name=message.object_name,
        trace_id=trace_id,
    )
    if message.access_only:
        return AccessJob(**common, document=document_from_message(document, generation))
    if not message.HasField("texts"):
        return FileJob(
            **common,
            document=replace(document_from_message(document, generation), original=message.object_name),
            url=message.url,
            content=message.content,
        )
    return TextsJob(
        **common,
        generation=generation,
        count=texts.count,
        size_bytes=texts.size_bytes,
        sha256=texts.sha256,
        existing_only=texts.existing_only,
    )


def without_content(data: bytes) -> bytes:
    """Return a queue message without the bytes of its original; a message that is not a job is unchanged."""
    try:
        message = ingest_pb2.IngestJob.FromString(data)
    except DecodeError:
        return data
    if not message.content:
        return data
    message.ClearField("content")
    return message.SerializeToString()


class _Common(TypedDict):
    job_id: str
    principal: Principal
    index: str
    object_name: str
    trace_id: str


class ProtoTextReader:
    """An `ingest.ports.TextReader` of length-prefixed ``TextDocument`` messages."""

    def read(self, path: Path) -> Iterator[Text]:
        """See `ingest.ports.TextReader.read`."""
        with path.open("rb") as file:
            while True:
                try:
                    message = proto.parse_length_prefixed(ingest_pb2.TextDocument, file)
                except (DecodeError, ValueError) as error:
                    raise UnreadableDocument("The texts of the job cannot be read.") from error
                if message is None:
                    return
                yield Text(message.document_id, message.text, message.metadata_json, message.suffix)


def document_from_message(message: document_pb2.Document, generation: int | None = None) -> Document:
    """Return the document of a message. A given ``generation`` replaces that of the message."""
    return Document(
        document_id=message.document_id,
        sourcefile=message.sourcefile,
        sha256=message.sha256,
        size_bytes=message.size_bytes,
        metadata_json=message.metadata_json,
        oids=tuple(message.access.oids),
        groups=tuple(message.access.groups),
        category=message.category,
        generation=message.generation if generation is None else generation,
        content_type=message.content_type,
        language=message.language,
        page_count=message.page_count,
        has_pictures=message.has_pictures,
        original=message.original,
    )


def document_to_message(document: Document) -> document_pb2.Document:
    """Return the message of a document for the retriever."""
    return document_pb2.Document(
        document_id=document.document_id,
        sourcefile=document.sourcefile,
        content_type=document.content_type,
        sha256=document.sha256,
        size_bytes=document.size_bytes,
        metadata_json=document.metadata_json,
        access=document_pb2.AccessControl(oids=document.oids, groups=document.groups),
        category=document.category,
        language=document.language,
        generation=document.generation,
        page_count=document.page_count,
        has_pictures=document.has_pictures,
        original=document.original,
    )


def chunks_to_messages(chunks: Sequence[Chunk], vectors: npt.NDArray[np.float32]) -> list[document_pb2.Chunk]:
    """Return the messages of chunks with their vectors, of the shape ``(len(chunks), dimension)``."""
    return [
        document_pb2.Chunk(
            number=chunk.number,
            text=chunk.text,
            indexed_text=chunk.indexed_text,
            page=chunk.page,
            headings=chunk.headings,
            vector=vector.tolist(),
            overlap=chunk.overlap,
            separator=chunk.separator,
        )
        for chunk, vector in zip(chunks, vectors, strict=True)
    ]


def status_from_message(data: bytes) -> Status:
    """Return the status in a job's record. For an unreadable record, return the status of a new job."""
    try:
        message = ingest_pb2.Job.FromString(data)
    except DecodeError:
        return Status(State.QUEUED)
    progress = message.progress
    return Status(
        state=_FROM_STATES.get(message.state, State.QUEUED),
        attempt=message.attempt,
        progress=Progress(
            progress.pages_done,
            progress.pages_total,
            progress.chunks_done,
            progress.chunks_total,
            progress.documents_done,
            progress.documents_total,
            progress.fetching,
        ),
        failure=Failure(message.error.reason, message.error.message) if message.HasField("error") else None,
        created_at=message.created_at.ToDatetime(UTC) if message.HasField("created_at") else None,
        trace_id=message.trace_id,
        outcomes=tuple(_FROM_OUTCOMES[number] for number in message.outcomes if number in _FROM_OUTCOMES),
        committing=message.committing,
        counted_attempts=message.counted_attempts,
        waiting_since=message.waiting_since.ToDatetime(UTC) if message.HasField("waiting_since") else None,
        warnings=tuple(JobWarning(item.reason, item.message, item.page, item.part) for item in message.warnings),
        warning_count=message.warning_count,
        given_up=message.given_up,
    )


def status_to_message(job: Job, status: Status, now: datetime) -> bytes:
    """Return a job's record."""
    progress, failure = status.progress, status.failure
    document = job.document if isinstance(job, FileJob | AccessJob) else None
    return ingest_pb2.Job(
        job_id=job.job_id,
        principal=job.principal.to_proto(),
        index=job.index,
        document_id=document.document_id if document else "",
        sourcefile=document.sourcefile if document else "",
        state=_STATES[status.state],
        progress=ingest_pb2.Progress(
            pages_done=progress.pages_done,
            pages_total=progress.pages_total,
            chunks_done=progress.chunks_done,
            chunks_total=progress.chunks_total,
            documents_done=progress.documents_done,
            documents_total=progress.documents_total,
            fetching=progress.fetching,
        ),
        error=ingest_pb2.JobError(reason=failure.reason, message=failure.message) if failure else None,
        attempt=status.attempt,
        created_at=_timestamp(status.created_at or now),
        updated_at=_timestamp(now),
        trace_id=status.trace_id or job.trace_id,
        outcomes=[_OUTCOMES[outcome] for outcome in status.outcomes],
        committing=status.committing,
        counted_attempts=status.counted_attempts,
        waiting_since=_timestamp(status.waiting_since) if status.waiting_since else None,
        warnings=[
            ingest_pb2.JobWarning(reason=item.reason, message=item.message, page=item.page, part=item.part)
            for item in status.warnings
        ],
        warning_count=status.warning_count,
        given_up=status.given_up,
    ).SerializeToString()


def _timestamp(moment: datetime) -> Timestamp:
    stamp = Timestamp()
    stamp.FromDatetime(moment)
    return stamp
