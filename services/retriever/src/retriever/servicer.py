"""The gRPC service. Each method converts the request, calls the logic and converts the result."""

import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

from causeway.retriever.v1 import retriever_pb2, retriever_pb2_grpc
from grpc.aio import ServicerContext
from servicekit.principal import Principal

from retriever.documents.catalogue import Catalogue
from retriever.documents.upsert import Upserts
from retriever.domain.changes import UpsertStep
from retriever.domain.index import IndexSummary
from retriever.embedding.text_vectors import Embeddings
from retriever.indexes.rebuild_jobs import Rebuilds
from retriever.indexes.snapshots import Snapshots
from retriever.search.retrieval import Retrieval
from retriever.wire import listings, messages
from retriever.wire.filters import to_filter

_Context = ServicerContext[Any, Any]


class RetrieverServicer(retriever_pb2_grpc.RetrieverServiceServicer):
    """``causeway.retriever.v1.RetrieverService``."""

    def __init__(
        self,
        retrieval: Retrieval,
        upserts: Upserts,
        catalogue: Catalogue,
        snapshots: Snapshots,
        rebuilds: Rebuilds,
        embeddings: Embeddings,
    ) -> None:
        self._retrieval = retrieval
        self._upserts = upserts
        self._catalogue = catalogue
        self._snapshots = snapshots
        self._rebuilds = rebuilds
        self._embeddings = embeddings

    async def Retrieve(  # noqa: N802  # gRPC's name
        self, request: retriever_pb2.RetrieveRequest, _context: _Context
    ) -> retriever_pb2.RetrieveResponse:
        """Find passages."""
        principal = Principal.from_proto(request.principal)
        return messages.from_retrieved(await self._retrieval.retrieve(principal, messages.to_query(request)))

    async def Upsert(  # noqa: N802  # gRPC's name
        self, request_iterator: AsyncIterator[retriever_pb2.UpsertRequest], _context: _Context
    ) -> retriever_pb2.UpsertResponse:
        """Store a document."""
        return messages.from_upserted(await self._upserts.upsert(_steps(request_iterator)))

    async def StoreDocument(  # noqa: N802  # gRPC's name
        self, request: retriever_pb2.StoreDocumentRequest, _context: _Context
    ) -> retriever_pb2.StoreDocumentResponse:
        """Store a document that arrives in one message."""
        return messages.from_stored(await self._upserts.upsert(_stream(messages.to_steps(request))))

    async def UpdateDocument(  # noqa: N802  # gRPC's name
        self, request: retriever_pb2.UpdateDocumentRequest, _context: _Context
    ) -> retriever_pb2.UpdateDocumentResponse:
        """Change the fields of a document."""
        principal = Principal.from_proto(request.principal)
        updated = await self._upserts.update(principal, request.index, messages.to_document(request.document))
        return messages.from_updated(updated)

    async def DeleteDocuments(  # noqa: N802  # gRPC's name
        self, request: retriever_pb2.DeleteDocumentsRequest, _context: _Context
    ) -> retriever_pb2.DeleteDocumentsResponse:
        """Delete documents."""
        principal = Principal.from_proto(request.principal)
        deleted = await self._catalogue.delete_documents(principal, request.index, request.document_ids)
        return retriever_pb2.DeleteDocumentsResponse(
            deleted=[messages.from_document(document) for document in deleted.documents],
            not_found_ids=deleted.not_found,
        )

    async def GetDocument(  # noqa: N802  # gRPC's name
        self, request: retriever_pb2.GetDocumentRequest, _context: _Context
    ) -> retriever_pb2.GetDocumentResponse:
        """Return a document's record, and part of its text on request."""
        principal = Principal.from_proto(request.principal)
        if not request.HasField("text_length"):
            document = await self._catalogue.document(principal, request.index, request.document_id)
            return retriever_pb2.GetDocumentResponse(document=messages.from_document(document))
        document, text = await self._catalogue.document_with_text(
            principal, request.index, request.document_id, listings.to_text_range(request)
        )
        return retriever_pb2.GetDocumentResponse(
            document=messages.from_document(document), text=listings.from_text(text)
        )

    async def ListDocuments(  # noqa: N802  # gRPC's name
        self, request: retriever_pb2.ListDocumentsRequest, _context: _Context
    ) -> retriever_pb2.ListDocumentsResponse:
        """List the records of documents."""
        page = await self._catalogue.documents(
            Principal.from_proto(request.principal),
            request.index,
            to_filter(request.filter),
            listings.to_page_request(request),
        )
        return listings.from_page(page)

    async def ListChunks(  # noqa: N802  # gRPC's name
        self, request: retriever_pb2.ListChunksRequest, _context: _Context
    ) -> retriever_pb2.ListChunksResponse:
        """List the chunks of a document."""
        document, chunks = await self._catalogue.chunks(
            Principal.from_proto(request.principal),
            request.index,
            request.document_id,
            request.first_number,
            request.page_size,
        )
        return listings.from_chunks(document, chunks)

    async def GetIndex(  # noqa: N802  # gRPC's name
        self, request: retriever_pb2.GetIndexRequest, _context: _Context
    ) -> retriever_pb2.GetIndexResponse:
        """Return an index's model, settings and, on request, counts and a document's record."""
        principal = Principal.from_proto(request.principal)
        if request.count:
            summary = await self._catalogue.summary(principal, request.index)
        else:
            summary = IndexSummary(await self._catalogue.index(principal, request.index), 0, 0)
        lookup = None
        if request.document_id:
            document = await self._catalogue.find(principal, request.index, request.document_id)
            lookup = retriever_pb2.DocumentLookup(document=messages.from_document(document) if document else None)
        return retriever_pb2.GetIndexResponse(
            embedding_model=summary.spec.embedding_model,
            dimension=summary.spec.dimension,
            settings=messages.from_settings(summary.spec),
            document_count=summary.documents,
            chunk_count=summary.chunks,
            lookup=lookup,
        )

    async def CreateIndex(  # noqa: N802  # gRPC's name
        self, request: retriever_pb2.CreateIndexRequest, _context: _Context
    ) -> retriever_pb2.CreateIndexResponse:
        """Create an index."""
        principal = Principal.from_proto(request.principal)
        message = request.settings
        settings = messages.to_settings(message)
        spec = await self._rebuilds.create(
            principal, request.index, message.embedding_model, settings, message.language
        )
        return retriever_pb2.CreateIndexResponse(index=messages.from_index(IndexSummary(spec, 0, 0)))

    async def UpdateIndex(  # noqa: N802  # gRPC's name
        self, request: retriever_pb2.UpdateIndexRequest, _context: _Context
    ) -> retriever_pb2.UpdateIndexResponse:
        """Change the settings of an index."""
        principal = Principal.from_proto(request.principal)
        settings = messages.to_settings(request.settings)
        spec = await self._rebuilds.update(principal, request.index, settings, request.update_mask.paths)
        return retriever_pb2.UpdateIndexResponse(settings=messages.from_settings(spec))

    async def RebuildIndex(  # noqa: N802  # gRPC's name
        self, request: retriever_pb2.RebuildIndexRequest, _context: _Context
    ) -> retriever_pb2.RebuildIndexResponse:
        """Start to rebuild an index."""
        principal = Principal.from_proto(request.principal)
        message = request.settings
        settings = messages.to_settings(message)
        rebuild = await self._rebuilds.begin(
            principal, request.index, message.embedding_model, settings, message.language
        )
        return retriever_pb2.RebuildIndexResponse(rebuild=messages.from_rebuild(rebuild))

    async def GetIndexRebuild(  # noqa: N802  # gRPC's name
        self, request: retriever_pb2.GetIndexRebuildRequest, _context: _Context
    ) -> retriever_pb2.GetIndexRebuildResponse:
        """Return the progress of an index's rebuild."""
        rebuild = await self._rebuilds.last(Principal.from_proto(request.principal), request.index)
        return retriever_pb2.GetIndexRebuildResponse(rebuild=messages.from_rebuild(rebuild))

    async def ListIndexes(  # noqa: N802  # gRPC's name
        self, request: retriever_pb2.ListIndexesRequest, _context: _Context
    ) -> retriever_pb2.ListIndexesResponse:
        """List indexes."""
        summaries = await self._catalogue.indexes(Principal.from_proto(request.principal))
        return retriever_pb2.ListIndexesResponse(indexes=[messages.from_index(summary) for summary in summaries])

    async def DeleteIndex(  # noqa: N802  # gRPC's name
        self, request: retriever_pb2.DeleteIndexRequest, _context: _Context
    ) -> retriever_pb2.DeleteIndexResponse:
        """Delete an index."""
        await self._catalogue.delete_index(Principal.from_proto(request.principal), request.index)
        return retriever_pb2.DeleteIndexResponse()

    async def PersistIndex(  # noqa: N802  # gRPC's name
        self, request: retriever_pb2.PersistIndexRequest, _context: _Context
    ) -> retriever_pb2.PersistIndexResponse:
        """Write a snapshot."""
        principal = Principal.from_proto(request.principal)
        contents = await self._snapshots.persist(principal, request.index, request.path)
        return retriever_pb2.PersistIndexResponse(document_count=contents.documents, chunk_count=contents.chunks)

    async def LoadIndex(  # noqa: N802  # gRPC's name
        self, request: retriever_pb2.LoadIndexRequest, _context: _Context
    ) -> retriever_pb2.LoadIndexResponse:
        """Create an index from a snapshot."""
        principal = Principal.from_proto(request.principal)
        summary = await self._snapshots.load(principal, request.path, request.index, overwrite=request.overwrite)
        return retriever_pb2.LoadIndexResponse(index=messages.from_index(summary))

    async def ListSnapshots(  # noqa: N802  # gRPC's name
        self, request: retriever_pb2.ListSnapshotsRequest, _context: _Context
    ) -> retriever_pb2.ListSnapshotsResponse:
        """List snapshots."""
        found = await self._snapshots.list_all(Principal.from_proto(request.principal))
        return retriever_pb2.ListSnapshotsResponse(
            snapshots=[messages.from_snapshot(snapshot) for snapshot in found]
        )

    async def DeleteSnapshot(  # noqa: N802  # gRPC's name
        self, request: retriever_pb2.DeleteSnapshotRequest, _context: _Context
    ) -> retriever_pb2.DeleteSnapshotResponse:
        """Delete a snapshot."""
        await self._snapshots.delete(Principal.from_proto(request.principal), request.path)
        return retriever_pb2.DeleteSnapshotResponse()

    async def CompactIndex(  # noqa: N802  # gRPC's name
        self, request: retriever_pb2.CompactIndexRequest, _context: _Context
    ) -> retriever_pb2.CompactIndexResponse:
        """Compact an index."""
        begin = time.perf_counter()
        await self._catalogue.compact(Principal.from_proto(request.principal), request.index)
        return retriever_pb2.CompactIndexResponse(duration_ms=(time.perf_counter() - begin) * 1000)

    async def Embed(  # noqa: N802  # gRPC's name
        self, request: retriever_pb2.EmbedRequest, _context: _Context
    ) -> retriever_pb2.EmbedResponse:
        """Embed texts."""
        Principal.from_proto(request.principal)  # refuses a request without a tenant
        return messages.from_embedded(await self._embeddings.embed(request.model, request.texts))

    async def ListEmbeddingModels(  # noqa: N802  # gRPC's name
        self, request: retriever_pb2.ListEmbeddingModelsRequest, _context: _Context
    ) -> retriever_pb2.ListEmbeddingModelsResponse:
        """List the embedding models."""
        Principal.from_proto(request.principal)  # refuses a request without a tenant
        return retriever_pb2.ListEmbeddingModelsResponse(
            models=[messages.from_embedder(model) for model in self._embeddings.models]
        )


async def _stream(steps: Sequence[UpsertStep]) -> AsyncIterator[UpsertStep]:
    for step in steps:
        yield step


async def _steps(requests: AsyncIterator[retriever_pb2.UpsertRequest]) -> AsyncIterator[UpsertStep]:
    async for request in requests:
        yield messages.to_step(request)
