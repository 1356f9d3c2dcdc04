"""The retriever over gRPC; implements `ingest.ports.Index`."""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any

import grpc
from causeway.retriever.v1 import filter_pb2, retriever_pb2, retriever_pb2_grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from servicekit import keys, rpc
from servicekit.deadline import Deadline
from servicekit.errors import InvalidRequest, NotFound, NotSupported, Unavailable

from ingest.adapters.messages import chunks_to_messages, document_from_message, document_to_message
from ingest.domain import Document, IndexProperties, Job, VectorSpace
from ingest.ports import Batch

_UPSERT = f"{retriever_pb2.DESCRIPTOR.services_by_name['RetrieverService'].full_name}/Upsert"
_NOT_FOUND = (grpc.StatusCode.NOT_FOUND,)
"""The gRPC status for a missing index or document, which callers expect."""
_UNIMPLEMENTED = (grpc.StatusCode.UNIMPLEMENTED,)
"""The gRPC status for a method that an older retriever does not have."""
_MAX_UNARY_CHUNKS = 16
"""Maximum chunks of a document that one unary call stores. The retriever commits such documents in groups."""
_READ_SECONDS = 10.0
"""Deadline of a call that reads."""
_PROBE_SECONDS = 2.0
"""Time-out of a health check."""
_WRITE_SECONDS = 60.0
"""Deadline of a call that updates or removes documents."""
_PAGE_SIZE = 1000
"""Number of documents in a page of a list."""
_SPACE_FIELDS = ("embedding_model", "dimension")
"""The fields that the retriever names if the vectors do not fit the index."""


class RetrieverIndex:
    """The retriever.

    Args:
        channel: The channel to the retriever.
    """

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub = retriever_pb2_grpc.RetrieverServiceStub(channel)
        self._check: Any = health_pb2_grpc.HealthStub(channel).Check  # type: ignore[attr-defined]  # set at run time

    async def properties(self, job: Job) -> IndexProperties | None:
        """See `ingest.ports.Index.properties`."""
        response = await self._get_index(job)
        return None if response is None else _index_properties(response)

    async def look_up(self, job: Job, document_id: str) -> tuple[IndexProperties | None, Document | None]:
        """See `ingest.ports.Index.look_up`."""
        response = await self._get_index(job, document_id)
        if response is None:
            return None, None
        if not response.HasField("lookup"):  # a retriever of an older version
            return _index_properties(response), await self.find(job, document_id)
        lookup = response.lookup
        document = document_from_message(lookup.document) if lookup.HasField("document") else None
        return _index_properties(response), document

    async def _get_index(self, job: Job, document_id: str = "") -> retriever_pb2.GetIndexResponse | None:
        request = retriever_pb2.GetIndexRequest(
            principal=job.principal.to_proto(), index=job.index, document_id=document_id
        )
        try:
            response: retriever_pb2.GetIndexResponse = await rpc.unary(
                self._stub.GetIndex, request, Deadline.after(_READ_SECONDS), expected=_NOT_FOUND
            )
        except NotFound:
            return None
        return response

    async def find(self, job: Job, document_id: str) -> Document | None:
        """See `ingest.ports.Index.find`."""
        request = retriever_pb2.GetDocumentRequest(
            principal=job.principal.to_proto(), index=job.index, document_id=document_id
        )
        try:
            response = await rpc.unary(
                self._stub.GetDocument, request, Deadline.after(_READ_SECONDS), expected=_NOT_FOUND
            )
        except NotFound:
            return None
        return document_from_message(response.document)

    async def update(self, job: Job, document: Document) -> bool:
        """See `ingest.ports.Index.update`."""
        request = retriever_pb2.UpdateDocumentRequest(
            principal=job.principal.to_proto(), index=job.index, document=document_to_message(document)
        )
        response = await rpc.unary(self._stub.UpdateDocument, request, Deadline.after(_WRITE_SECONDS))
        return bool(response.outcome == retriever_pb2.UPDATE_OUTCOME_UPDATED)

    async def store(
        self, job: Job, document: Document, space: VectorSpace, batches: AsyncIterator[Batch], seconds: float
    ) -> None:
        """See `ingest.ports.Index.store`."""
        deadline = Deadline.after(seconds)
        begin = retriever_pb2.UpsertBegin(
            principal=job.principal.to_proto(),
            index=job.index,
            document=document_to_message(document),
            embedding_model=space.model,
            dimension=space.dimension,
        )
        first, is_complete = await _read_first(batches)
        try:
            if not is_complete or not await self._store_unary(begin, first, deadline):
                requests = _requests(begin, first, batches)
                await rpc.client_stream(self._stub.Upsert, requests, _UPSERT, deadline)
        except InvalidRequest as error:
            if error.field not in _SPACE_FIELDS:
                raise
            # The next attempt reads the embedding model of the new index.
            raise Unavailable(f"{error.message} Another job has just created the index.") from error

    async def members(self, job: Job, document_id: str) -> list[Document]:
        """See `ingest.ports.Index.members`."""
        is_member = filter_pb2.MatchAny(field=f"metadata.{keys.PART_OF_ID}", json_values=[json.dumps(document_id)])
        request = retriever_pb2.ListDocumentsRequest(
            principal=job.principal.to_proto(),
            index=job.index,
            filter=filter_pb2.Filter(must=[filter_pb2.Condition(match_any=is_member)]),
            page_size=_PAGE_SIZE,
        )
        found: list[Document] = []
        while True:
            try:
                page = await rpc.unary(
                    self._stub.ListDocuments, request, Deadline.after(_READ_SECONDS), expected=_NOT_FOUND
                )
            except NotFound:  # the index does not exist yet
                return found
            found += map(document_from_message, page.documents)
            if not page.next_page_token:
                return found
            request.page_token = page.next_page_token

    async def remove(self, job: Job, document_ids: Sequence[str]) -> list[Document]:
        """See `ingest.ports.Index.remove`."""
        if not document_ids:
            return []
        request = retriever_pb2.DeleteDocumentsRequest(
            principal=job.principal.to_proto(), index=job.index, document_ids=document_ids
        )
        response = await rpc.unary(self._stub.DeleteDocuments, request, Deadline.after(_WRITE_SECONDS))
        return [document_from_message(document) for document in response.deleted]

    async def is_ready(self) -> bool:
        """Return whether the retriever's health check reports SERVING."""
        try:
            response = await self._check(health_pb2.HealthCheckRequest(), timeout=_PROBE_SECONDS)
        except grpc.aio.AioRpcError:
            return False
        return bool(response.status == health_pb2.HealthCheckResponse.SERVING)

    async def _store_unary(
        self, begin: retriever_pb2.UpsertBegin, batches: Sequence[Batch], deadline: Deadline
    ) -> bool:
        """Store a small document with one unary call. Return False if the retriever lacks the method."""
        request = retriever_pb2.StoreDocumentRequest(begin=begin)
        for batch in batches:
            request.chunks.extend(chunks_to_messages(batch.chunks, batch.vectors))
        try:
            await rpc.unary(self._stub.StoreDocument, request, deadline, expected=_UNIMPLEMENTED)
        except NotSupported:
            return False
        return True


async def _read_first(batches: AsyncIterator[Batch]) -> tuple[list[Batch], bool]:
    """Read the first batches. Return them, and whether they are all batches of the document."""
    first: list[Batch] = []
    async for batch in batches:
        first.append(batch)
        if sum(len(received.chunks) for received in first) > _MAX_UNARY_CHUNKS:
            return first, False
    return first, True


async def _requests(
    begin: retriever_pb2.UpsertBegin, first: Sequence[Batch], further: AsyncIterator[Batch]
) -> AsyncGenerator[retriever_pb2.UpsertRequest, None]:
    yield retriever_pb2.UpsertRequest(begin=begin)
    count = 0
    for batch in first:
        count += len(batch.chunks)
        yield _chunks(batch)
    async for batch in further:
        count += len(batch.chunks)
        yield _chunks(batch)
    yield retriever_pb2.UpsertRequest(commit=retriever_pb2.UpsertCommit(chunk_count=count))


def _chunks(batch: Batch) -> retriever_pb2.UpsertRequest:
    chunks = retriever_pb2.UpsertChunks(chunks=chunks_to_messages(batch.chunks, batch.vectors))
    return retriever_pb2.UpsertRequest(chunks=chunks)


def _index_properties(response: retriever_pb2.GetIndexResponse) -> IndexProperties:
    settings = response.settings
    return IndexProperties(
        VectorSpace(response.embedding_model, response.dimension),
        settings.chunk_tokens if settings.HasField("chunk_tokens") else None,
        settings.chunk_overlap if settings.HasField("chunk_overlap") else None,
        ocr=not settings.HasField("ocr") or settings.ocr,
    )
