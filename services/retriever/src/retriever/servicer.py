"""The gRPC service: each method reads a message, asks the logic, writes a message."""

from collections.abc import AsyncIterator
from typing import Any

from causeway.retriever.v1 import retriever_pb2, retriever_pb2_grpc
from grpc.aio import ServicerContext
from servicekit.principal import Principal

from retriever import wire
from retriever.catalogue import Catalogue
from retriever.domain import UpsertStep
from retriever.retrieval import Retrieval
from retriever.upsert import Upserts

_Context = ServicerContext[Any, Any]


class RetrieverServicer(retriever_pb2_grpc.RetrieverServiceServicer):
    """``causeway.retriever.v1.RetrieverService``."""

    def __init__(self, retrieval: Retrieval, upserts: Upserts, catalogue: Catalogue) -> None:
        self._retrieval = retrieval
        self._upserts = upserts
        self._catalogue = catalogue

    async def Retrieve(  # noqa: N802  # gRPC's name
        self, request: retriever_pb2.RetrieveRequest, _context: _Context
    ) -> retriever_pb2.RetrieveResponse:
        """Finds passages."""
        principal = Principal.from_proto(request.principal)
        return wire.from_retrieved(await self._retrieval.retrieve(principal, wire.to_query(request)))

    async def Upsert(  # noqa: N802  # gRPC's name
        self, request_iterator: AsyncIterator[retriever_pb2.UpsertRequest], _context: _Context
    ) -> retriever_pb2.UpsertResponse:
        """Stores a document."""
        return wire.from_upserted(await self._upserts.upsert(_steps(request_iterator)))

    async def DeleteDocuments(  # noqa: N802  # gRPC's name
        self, request: retriever_pb2.DeleteDocumentsRequest, _context: _Context
    ) -> retriever_pb2.DeleteDocumentsResponse:
        """Removes documents."""
        principal = Principal.from_proto(request.principal)
        deleted = await self._catalogue.delete_documents(principal, request.index, request.document_ids)
        return retriever_pb2.DeleteDocumentsResponse(
            deleted=[wire.from_document(each) for each in deleted.documents], not_found_ids=deleted.not_found
        )

    async def GetDocument(  # noqa: N802  # gRPC's name
        self, request: retriever_pb2.GetDocumentRequest, _context: _Context
    ) -> retriever_pb2.GetDocumentResponse:
        """Reads a record."""
        principal = Principal.from_proto(request.principal)
        document = await self._catalogue.document(principal, request.index, request.document_id)
        return retriever_pb2.GetDocumentResponse(document=wire.from_document(document))

    async def ListDocuments(  # noqa: N802  # gRPC's name
        self, request: retriever_pb2.ListDocumentsRequest, _context: _Context
    ) -> retriever_pb2.ListDocumentsResponse:
        """Lists records."""
        page = await self._catalogue.documents(
            Principal.from_proto(request.principal),
            request.index,
            wire.to_filter(request.filter),
            request.page_size,
            request.page_token,
        )
        return retriever_pb2.ListDocumentsResponse(
            documents=[wire.from_document(each) for each in page.documents],
            next_page_token=page.next_token,
            total=page.total,
        )

    async def ListIndexes(  # noqa: N802  # gRPC's name
        self, request: retriever_pb2.ListIndexesRequest, _context: _Context
    ) -> retriever_pb2.ListIndexesResponse:
        """Lists indexes."""
        summaries = await self._catalogue.indexes(Principal.from_proto(request.principal))
        return retriever_pb2.ListIndexesResponse(indexes=[wire.from_index(each) for each in summaries])

    async def DeleteIndex(  # noqa: N802  # gRPC's name
        self, request: retriever_pb2.DeleteIndexRequest, _context: _Context
    ) -> retriever_pb2.DeleteIndexResponse:
        """Removes an index."""
        await self._catalogue.delete_index(Principal.from_proto(request.principal), request.index)
        return retriever_pb2.DeleteIndexResponse()


async def _steps(requests: AsyncIterator[retriever_pb2.UpsertRequest]) -> AsyncIterator[UpsertStep]:
    async for request in requests:
        yield wire.to_step(request)
