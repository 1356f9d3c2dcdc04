"""Call the retriever over gRPC."""

from collections.abc import Mapping, Sequence

import grpc
import msgspec
from causeway.retriever.v1 import document_pb2, filter_pb2, retriever_pb2, retriever_pb2_grpc
from servicekit import rpc
from servicekit.deadline import Deadline
from servicekit.principal import Principal

from gateway.clients.index_management import FUSIONS, metadata_condition
from gateway.domain import Passage, Retrieval, RetrievalMode, SearchResults
from gateway.domain.documents import (
    PassagePage,
    ReadDocument,
    Removal,
    StoredDocument,
    StoredPage,
    StoredPassage,
    TextRange,
)

DESCRIPTOR = retriever_pb2.DESCRIPTOR.services_by_name["RetrieverService"]

_PAGE_SIZE = 1000
_MODES = {
    RetrievalMode.HYBRID: retriever_pb2.RETRIEVAL_MODE_HYBRID,
    RetrievalMode.VECTORS: retriever_pb2.RETRIEVAL_MODE_VECTORS,
    RetrievalMode.TEXT: retriever_pb2.RETRIEVAL_MODE_TEXT,
}
_FOUND_BY = {
    retriever_pb2.PASSAGE_SOURCE_DENSE_ONLY: "dense_only",
    retriever_pb2.PASSAGE_SOURCE_SPARSE_ONLY: "sparse_only",
}


class GrpcRetriever:
    """`ports.answering.Retriever` and `ports.documents.Catalogue` over a channel to the retriever."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub = retriever_pb2_grpc.RetrieverServiceStub(channel)

    async def retrieve(
        self, principal: Principal, retrieval: Retrieval, query: str, top: int, deadline: Deadline
    ) -> SearchResults:
        """See `ports.answering.Retriever`."""
        request = retriever_pb2.RetrieveRequest(
            principal=principal.to_proto(),
            indexes=retrieval.indexes,
            query=query,
            mode=_MODES[retrieval.mode],
            top=top,
            filter=_filter(retrieval),
            minimum_score=retrieval.minimum_score,
            fusion=FUSIONS[retrieval.tuning.fusion],
            dense_weight=retrieval.tuning.dense_weight,
            expand=retrieval.tuning.expand,
            diversity=retrieval.tuning.diversity,
            neighbours=retrieval.tuning.neighbours,
            captions=retrieval.semantic_captions,
        )
        if retrieval.semantic_ranker:
            request.rerank.reranker = retrieval.tuning.reranker
            if retrieval.minimum_reranker_score is not None:
                request.rerank.minimum_score = retrieval.minimum_reranker_score
        if retrieval.similarity_threshold is not None and retrieval.mode is RetrievalMode.TEXT:
            # With this threshold, the retriever omits no passage, and also computes the cosine similarity of
            # passages that only text search found.
            request.minimum_dense_score = -1.0
        response: retriever_pb2.RetrieveResponse = await rpc.unary(self._stub.Retrieve, request, deadline)
        steps = tuple((step.name, step.duration_ms) for step in response.steps)
        return SearchResults(tuple(map(_passage, response.passages)), response.not_reranked, steps)

    async def check_indexes(self, principal: Principal, indexes: Sequence[str], deadline: Deadline) -> None:
        """See `ports.answering.Retriever`."""
        for index in dict.fromkeys(indexes):
            request = retriever_pb2.GetIndexRequest(principal=principal.to_proto(), index=index)
            await rpc.unary(self._stub.GetIndex, request, deadline)

    async def remove(
        self, principal: Principal, index: str, document_ids: Sequence[str], deadline: Deadline
    ) -> Removal:
        """See `ports.documents.Catalogue`."""
        request = retriever_pb2.DeleteDocumentsRequest(
            principal=principal.to_proto(), index=index, document_ids=dict.fromkeys(document_ids)
        )
        response: retriever_pb2.DeleteDocumentsResponse = await rpc.unary(
            self._stub.DeleteDocuments, request, deadline
        )
        removed = tuple(document.document_id for document in response.deleted)
        with_pictures = tuple(document.document_id for document in response.deleted if document.has_pictures)
        originals = tuple(document.original for document in response.deleted if document.original)
        return Removal(removed, tuple(response.not_found_ids), with_pictures, originals)

    async def find(
        self, principal: Principal, index: str, values: Mapping[str, Sequence[str]], deadline: Deadline
    ) -> tuple[StoredDocument, ...]:
        """See `ports.documents.Catalogue`."""
        request = retriever_pb2.ListDocumentsRequest(
            principal=principal.to_proto(),
            index=index,
            filter=filter_pb2.Filter(must=[_one_of(field, field_values) for field, field_values in values.items()]),
            page_size=_PAGE_SIZE,
        )
        found: list[StoredDocument] = []
        while True:
            response: retriever_pb2.ListDocumentsResponse = await rpc.unary(
                self._stub.ListDocuments, request, deadline
            )
            found += map(_stored, response.documents)
            if not response.next_page_token:
                return tuple(found)
            request.page_token = response.next_page_token

    async def read(
        self, principal: Principal, index: str, document_id: str, part: TextRange, deadline: Deadline
    ) -> ReadDocument:
        """See `ports.documents.Catalogue`."""
        request = retriever_pb2.GetDocumentRequest(
            principal=principal.to_proto(),
            index=index,
            document_id=document_id,
            text_length=part.length,
            text_offset=part.offset,
            first_page=part.first_page,
            last_page=part.last_page,
        )
        response: retriever_pb2.GetDocumentResponse = await rpc.unary(self._stub.GetDocument, request, deadline)
        document = response.document
        return ReadDocument(
            _stored(document),
            response.text.text,
            response.text.is_truncated,
            document.page_count,
            document.category,
            document.metadata_json or b"{}",
        )

    async def passages(
        self, principal: Principal, index: str, document_id: str, first: int, count: int, deadline: Deadline
    ) -> PassagePage:
        """See `ports.documents.Catalogue`."""
        request = retriever_pb2.ListChunksRequest(
            principal=principal.to_proto(),
            index=index,
            document_id=document_id,
            first_number=first,
            page_size=count,
        )
        response: retriever_pb2.ListChunksResponse = await rpc.unary(self._stub.ListChunks, request, deadline)
        passages = tuple(
            StoredPassage(chunk.id, chunk.number, chunk.page, tuple(chunk.headings), chunk.text, chunk.sourcepage)
            for chunk in response.chunks
        )
        return PassagePage(_stored(response.document), passages, response.document.chunk_count)

    async def page(
        self, principal: Principal, index: str, count: int, token: str, deadline: Deadline
    ) -> StoredPage:
        """See `ports.documents.Catalogue`."""
        request = retriever_pb2.ListDocumentsRequest(
            principal=principal.to_proto(), index=index, page_size=count, page_token=token
        )
        response: retriever_pb2.ListDocumentsResponse = await rpc.unary(self._stub.ListDocuments, request, deadline)
        return StoredPage(tuple(map(_stored, response.documents)), response.next_page_token)


def _filter(retrieval: Retrieval) -> filter_pb2.Filter | None:
    if not (retrieval.include_category or retrieval.exclude_category or retrieval.metadata):
        return None
    message = filter_pb2.Filter(must=[metadata_condition(condition) for condition in retrieval.metadata])
    if retrieval.include_category:
        message.must.append(_one_of("category", [retrieval.include_category]))
    if retrieval.exclude_category:
        message.must_not.append(_one_of("category", [retrieval.exclude_category]))
    return message


def _one_of(field: str, values: Sequence[str]) -> filter_pb2.Condition:
    encoded = [msgspec.json.encode(value).decode() for value in values]
    return filter_pb2.Condition(match_any=filter_pb2.MatchAny(field=field, json_values=encoded))


def _stored(document: document_pb2.Document) -> StoredDocument:
    return StoredDocument(
        document_id=document.document_id,
        sourcefile=document.sourcefile,
        content_type=document.content_type,
        sha256=document.sha256,
        size_bytes=document.size_bytes,
        updated_at=document.updated_at.seconds + document.updated_at.nanos / 1e9,
        original=document.original,
        generation=document.generation,
        oids=tuple(document.access.oids),
        groups=tuple(document.access.groups),
    )


def _passage(message: retriever_pb2.Passage) -> Passage:
    document = message.document
    headings, captions = message.headings, message.captions
    oids, groups = document.access.oids, document.access.groups
    # Most of the four lists are empty. Testing an empty protobuf list is faster than converting it with `tuple`.
    return Passage(
        id=message.id,
        index=message.index,
        document_id=document.document_id,
        sourcefile=document.sourcefile,
        sourcepage=message.sourcepage,
        text=message.text,
        score=message.score,
        page=message.page,
        chunk_number=message.chunk_number,
        headings=tuple(headings) if headings else (),
        category=document.category,
        oids=tuple(oids) if oids else (),
        groups=tuple(groups) if groups else (),
        metadata_json=document.metadata_json or b"{}",
        dense_score=message.dense_score if message.HasField("dense_score") else None,
        sparse_score=message.sparse_score if message.HasField("sparse_score") else None,
        reranker_score=message.reranker_score if message.HasField("reranker_score") else None,
        found_by=_FOUND_BY.get(message.source, "both"),
        sha256=document.sha256,
        has_pictures=document.has_pictures,
        captions=tuple(captions) if captions else (),
        generation=document.generation,
        has_original=bool(document.original),
    )
