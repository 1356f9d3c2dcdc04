"""Messages of ``retriever/v1`` ↔ the domain. Only this, `wire_filter` and `servicer` know the wire."""

from causeway.retriever.v1 import document_pb2, retriever_pb2
from embedding.port import Embedder
from servicekit.errors import InvalidRequest
from servicekit.principal import Principal

from retriever.domain import (
    AccessControl,
    Begin,
    Chunk,
    Commit,
    Document,
    DocumentPage,
    DocumentText,
    Embedded,
    IndexSummary,
    Mode,
    Outcome,
    PageRequest,
    Passage,
    Query,
    Retrieved,
    Source,
    Updated,
    Upserted,
    UpsertStep,
)
from retriever.wire_filter import to_filter

_MODES = {
    retriever_pb2.RETRIEVAL_MODE_UNSPECIFIED: Mode.HYBRID,
    retriever_pb2.RETRIEVAL_MODE_HYBRID: Mode.HYBRID,
    retriever_pb2.RETRIEVAL_MODE_VECTORS: Mode.VECTORS,
    retriever_pb2.RETRIEVAL_MODE_TEXT: Mode.TEXT,
}
_SOURCES = {
    Source.BOTH: retriever_pb2.PASSAGE_SOURCE_BOTH,
    Source.DENSE: retriever_pb2.PASSAGE_SOURCE_DENSE_ONLY,
    Source.SPARSE: retriever_pb2.PASSAGE_SOURCE_SPARSE_ONLY,
}
_OUTCOMES = {
    Outcome.CREATED: retriever_pb2.UPSERT_OUTCOME_CREATED,
    Outcome.REPLACED: retriever_pb2.UPSERT_OUTCOME_REPLACED,
    Outcome.UNCHANGED: retriever_pb2.UPSERT_OUTCOME_UNCHANGED,
}


def to_query(request: retriever_pb2.RetrieveRequest) -> Query:
    """What to look for.

    Raises:
        InvalidRequest: The mode or the filter is none.
    """
    mode = _MODES.get(request.mode)
    if mode is None:
        raise InvalidRequest(f"There is no retrieval mode {request.mode}.", field="mode")
    return Query(
        indexes=tuple(request.indexes),
        text=request.query,
        mode=mode,
        top=request.top,
        filter=to_filter(request.filter),
        minimum_dense_score=request.minimum_dense_score if request.HasField("minimum_dense_score") else None,
        minimum_score=request.minimum_score if request.HasField("minimum_score") else None,
        skip_missing_scores=request.skip_missing_scores,
    )


def to_step(request: retriever_pb2.UpsertRequest) -> UpsertStep:
    """A step of an upsert.

    Raises:
        InvalidRequest: The message is empty.
    """
    match request.WhichOneof("step"):
        case "begin":
            return Begin(
                Principal.from_proto(request.begin.principal),
                request.begin.index,
                to_document(request.begin.document),
                request.begin.embedding_model,
                request.begin.dimension,
            )
        case "chunks":
            return [_to_chunk(each) for each in request.chunks.chunks]
        case "commit":
            return Commit(request.commit.chunk_count)
        case _:
            raise InvalidRequest("The message holds no step.", field="step")


def to_page_request(request: retriever_pb2.ListDocumentsRequest) -> PageRequest:
    """Which page of a listing."""
    return PageRequest(
        request.page_size,
        request.page_token,
        request.offset if request.HasField("offset") else None,
        request.text_length if request.HasField("text_length") else None,
    )


def to_document(message: document_pb2.Document) -> Document:
    """A document as it is sent."""
    return Document(
        document_id=message.document_id,
        sourcefile=message.sourcefile,
        content_type=message.content_type,
        sha256=message.sha256,
        size_bytes=message.size_bytes,
        metadata_json=message.metadata_json,
        access=AccessControl(tuple(message.access.oids), tuple(message.access.groups)),
        category=message.category,
        language=message.language,
        generation=message.generation,
        page_count=message.page_count,
        has_pictures=message.has_pictures,
    )


def _to_chunk(message: document_pb2.Chunk) -> Chunk:
    return Chunk(
        message.number,
        message.text,
        message.indexed_text,
        message.page,
        tuple(message.headings),
        list(message.vector),
        message.overlap,
        message.separator if message.HasField("separator") else None,
    )


def from_document(document: Document) -> document_pb2.Document:
    """A record of the catalogue."""
    message = document_pb2.Document(
        document_id=document.document_id,
        sourcefile=document.sourcefile,
        content_type=document.content_type,
        sha256=document.sha256,
        size_bytes=document.size_bytes,
        metadata_json=document.metadata_json,
        access=document_pb2.AccessControl(oids=document.access.oids, groups=document.access.groups),
        category=document.category,
        language=document.language,
        generation=document.generation,
        page_count=document.page_count,
        has_pictures=document.has_pictures,
        chunk_count=document.chunk_count,
    )
    message.updated_at.FromDatetime(document.updated_at)
    return message


def from_text(text: DocumentText) -> document_pb2.DocumentText:
    """A document's text."""
    return document_pb2.DocumentText(text=text.text, is_truncated=text.is_truncated)


def from_page(page: DocumentPage) -> retriever_pb2.ListDocumentsResponse:
    """A page of a listing."""
    return retriever_pb2.ListDocumentsResponse(
        documents=[from_document(each) for each in page.documents],
        next_page_token=page.next_token,
        total=page.total,
        texts=[from_text(each) for each in page.texts],
    )


def from_updated(updated: Updated) -> retriever_pb2.UpdateDocumentResponse:
    """What became of an update."""
    outcome = retriever_pb2.UPDATE_OUTCOME_UPDATED if updated.changed else retriever_pb2.UPDATE_OUTCOME_UNCHANGED
    return retriever_pb2.UpdateDocumentResponse(outcome=outcome, document=from_document(updated.document))


def from_upserted(upserted: Upserted) -> retriever_pb2.UpsertResponse:
    """What became of an upsert."""
    return retriever_pb2.UpsertResponse(
        outcome=_OUTCOMES[upserted.outcome], document=from_document(upserted.document)
    )


def from_retrieved(retrieved: Retrieved) -> retriever_pb2.RetrieveResponse:
    """Passages and steps."""
    return retriever_pb2.RetrieveResponse(
        passages=[_from_passage(each) for each in retrieved.passages],
        steps=[retriever_pb2.Step(name=each.name, duration_ms=each.milliseconds) for each in retrieved.steps],
    )


def _from_passage(passage: Passage) -> retriever_pb2.Passage:
    return retriever_pb2.Passage(
        id=passage.id,
        index=passage.index,
        document=from_document(passage.document),
        chunk_number=passage.number,
        page=passage.page,
        headings=passage.headings,
        text=passage.text,
        sourcepage=passage.document.cited_as(passage.page),
        score=passage.score,
        dense_score=passage.dense_score,
        sparse_score=passage.sparse_score,
        source=_SOURCES[passage.source],
    )


def from_index(summary: IndexSummary) -> retriever_pb2.Index:
    """An entry of the list of indexes."""
    return retriever_pb2.Index(
        name=summary.spec.name,
        embedding_model=summary.spec.embedding_model,
        dimension=summary.spec.dimension,
        document_count=summary.documents,
        chunk_count=summary.chunks,
    )


def from_embedded(embedded: Embedded) -> retriever_pb2.EmbedResponse:
    """Vectors of texts."""
    return retriever_pb2.EmbedResponse(
        model=embedded.model,
        embeddings=[
            retriever_pb2.Embedding(
                vector=each.vector, token_count=each.tokens, embedded_token_count=each.embedded_tokens
            )
            for each in embedded.vectors
        ],
    )


def from_embedder(embedder: Embedder) -> retriever_pb2.EmbeddingModel:
    """A model that makes vectors."""
    return retriever_pb2.EmbeddingModel(
        name=embedder.model, dimension=embedder.dimension, max_tokens=embedder.max_tokens
    )
