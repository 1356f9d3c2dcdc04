"""Conversion of messages of ``retriever/v1``. `wire.filters` converts filters."""

from causeway.retriever.v1 import document_pb2, retriever_pb2
from embedding.port import Embedder
from servicekit.errors import InvalidRequest
from servicekit.principal import Principal

from retriever.domain.changes import Begin, Commit, Outcome, Updated, Upserted, UpsertStep
from retriever.domain.document import AccessControl, Chunk, Document
from retriever.domain.index import Fusion, IndexSettings, IndexSpec, IndexSummary
from retriever.domain.query import DEFAULT_TOP, Mode, Passage, Query, Rerank, Retrieved, Source
from retriever.embedding.text_vectors import Embedded
from retriever.indexes.rebuild_jobs import Rebuild, RebuildState
from retriever.storage.snapshot_files import StoredSnapshot
from retriever.wire.filters import to_filter

_MODES = {
    retriever_pb2.RETRIEVAL_MODE_UNSPECIFIED: Mode.HYBRID,
    retriever_pb2.RETRIEVAL_MODE_HYBRID: Mode.HYBRID,
    retriever_pb2.RETRIEVAL_MODE_VECTORS: Mode.VECTORS,
    retriever_pb2.RETRIEVAL_MODE_TEXT: Mode.TEXT,
}
_FUSIONS = {
    None: retriever_pb2.FUSION_UNSPECIFIED,
    Fusion.SCORES: retriever_pb2.FUSION_SCORES,
    Fusion.RANKS: retriever_pb2.FUSION_RANKS,
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
_REBUILD_STATES = {
    RebuildState.RUNNING: retriever_pb2.REBUILD_STATE_RUNNING,
    RebuildState.SUCCEEDED: retriever_pb2.REBUILD_STATE_SUCCEEDED,
    RebuildState.FAILED: retriever_pb2.REBUILD_STATE_FAILED,
}


def to_query(request: retriever_pb2.RetrieveRequest) -> Query:
    """Return the query of a request.

    Raises:
        InvalidRequest: The mode, the fusion or the filter is invalid.
    """
    mode = _MODES.get(request.mode)
    if mode is None:
        raise InvalidRequest(f"There is no retrieval mode {request.mode}.", field="mode")
    return Query(
        indexes=tuple(request.indexes),
        text=request.query,
        mode=mode,
        top=request.top or DEFAULT_TOP,
        filter=to_filter(request.filter),
        minimum_dense_score=request.minimum_dense_score if request.HasField("minimum_dense_score") else None,
        minimum_score=request.minimum_score if request.HasField("minimum_score") else None,
        skip_missing_scores=request.skip_missing_scores,
        fusion=_to_fusion(request.fusion, "fusion"),
        dense_weight=request.dense_weight if request.HasField("dense_weight") else None,
        expand=request.expand if request.HasField("expand") else None,
        diversity=request.diversity,
        neighbours=request.neighbours,
        rerank=_to_rerank(request.rerank) if request.HasField("rerank") else None,
        captions=request.captions,
    )


def _to_fusion(code: int, field: str) -> Fusion | None:
    for fusion, known in _FUSIONS.items():
        if code == known:
            return fusion
    raise InvalidRequest(f"There is no fusion {code}.", field=field)


def _to_rerank(message: retriever_pb2.Rerank) -> Rerank:
    return Rerank(message.reranker, message.minimum_score if message.HasField("minimum_score") else None)


def to_step(request: retriever_pb2.UpsertRequest) -> UpsertStep:
    """Return the step of an upsert.

    Raises:
        InvalidRequest: The message is empty.
    """
    match request.WhichOneof("step"):
        case "begin":
            return _to_begin(request.begin)
        case "chunks":
            return [_to_chunk(chunk) for chunk in request.chunks.chunks]
        case "commit":
            return Commit(request.commit.chunk_count)
        case _:
            raise InvalidRequest("The message has no step: begin, chunks or commit.", field="step")


def to_steps(request: retriever_pb2.StoreDocumentRequest) -> list[UpsertStep]:
    """Return the steps of an upsert in one message."""
    chunks = [_to_chunk(chunk) for chunk in request.chunks]
    return [_to_begin(request.begin), chunks, Commit(len(chunks))]


def _to_begin(message: retriever_pb2.UpsertBegin) -> Begin:
    return Begin(
        Principal.from_proto(message.principal),
        message.index,
        to_document(message.document),
        message.embedding_model,
        message.dimension,
    )


def to_document(message: document_pb2.Document) -> Document:
    """Return the document of a message."""
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
        original=message.original,
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
    """Return the message of a record of the catalogue."""
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
        original=document.original,
        chunk_count=document.chunk_count,
    )
    message.updated_at.FromDatetime(document.updated_at)
    return message


def from_updated(updated: Updated) -> retriever_pb2.UpdateDocumentResponse:
    """Return the message of an update's outcome."""
    outcome = retriever_pb2.UPDATE_OUTCOME_UPDATED if updated.changed else retriever_pb2.UPDATE_OUTCOME_UNCHANGED
    return retriever_pb2.UpdateDocumentResponse(outcome=outcome, document=from_document(updated.document))


def from_upserted(upserted: Upserted) -> retriever_pb2.UpsertResponse:
    """Return the message of an upsert's outcome."""
    return retriever_pb2.UpsertResponse(
        outcome=_OUTCOMES[upserted.outcome], document=from_document(upserted.document)
    )


def from_stored(upserted: Upserted) -> retriever_pb2.StoreDocumentResponse:
    """Return the message of an upsert's outcome, without the record."""
    return retriever_pb2.StoreDocumentResponse(outcome=_OUTCOMES[upserted.outcome])


def from_retrieved(retrieved: Retrieved) -> retriever_pb2.RetrieveResponse:
    """Return the message of passages and steps."""
    message = retriever_pb2.RetrieveResponse(
        steps=[retriever_pb2.Step(name=step.name, duration_ms=step.milliseconds) for step in retrieved.steps],
        reranker=retrieved.reranker,
        not_reranked=retrieved.not_reranked,
    )
    # Each document is converted once.
    documents = {id(passage.document): passage.document for passage in retrieved.passages}
    converted = {key: from_document(document) for key, document in documents.items()}
    for passage in retrieved.passages:
        _add_passage(message, passage, converted[id(passage.document)])
    return message


def _add_passage(
    message: retriever_pb2.RetrieveResponse, passage: Passage, document: document_pb2.Document
) -> None:
    # `add` creates the passage inside the response. The constructor of the response would copy each passage.
    message.passages.add(
        id=passage.id,
        index=passage.index,
        document=document,
        chunk_number=passage.number,
        page=passage.page,
        headings=passage.headings,
        text=passage.text,
        sourcepage=passage.document.citation(passage.page),
        score=passage.score,
        dense_score=passage.dense_score,
        sparse_score=passage.sparse_score,
        reranker_score=passage.reranker_score,
        source=_SOURCES[passage.source],
        first_chunk_number=passage.first,
        last_chunk_number=passage.last,
        captions=passage.captions,
    )


def from_index(summary: IndexSummary) -> retriever_pb2.Index:
    """Return the message of an index in a listing."""
    return retriever_pb2.Index(
        name=summary.spec.name,
        embedding_model=summary.spec.embedding_model,
        dimension=summary.spec.dimension,
        document_count=summary.documents,
        chunk_count=summary.chunks,
        settings=from_settings(summary.spec),
    )


def from_snapshot(snapshot: StoredSnapshot) -> retriever_pb2.Snapshot:
    """Return the message of a snapshot in a listing."""
    message = retriever_pb2.Snapshot(
        path=snapshot.path,
        index=snapshot.index,
        document_count=snapshot.documents,
        chunk_count=snapshot.chunks,
        size_bytes=snapshot.size_bytes,
    )
    message.created_at.FromDatetime(snapshot.created_at)
    return message


def to_settings(message: retriever_pb2.IndexSettings) -> IndexSettings:
    """Return the index settings of a message.

    Raises:
        InvalidRequest: The fusion is invalid.
    """
    return IndexSettings(
        message.chunk_tokens if message.HasField("chunk_tokens") else None,
        message.chunk_overlap if message.HasField("chunk_overlap") else None,
        _to_fusion(message.fusion, "settings.fusion"),
        message.dense_weight if message.HasField("dense_weight") else None,
        message.expand if message.HasField("expand") else None,
        message.ocr if message.HasField("ocr") else None,
    )


def from_settings(spec: IndexSpec) -> retriever_pb2.IndexSettings:
    """Return the message of an index's settings."""
    return _from_settings(spec.embedding_model, spec.language, spec.settings)


def _from_settings(embedding_model: str, language: str, settings: IndexSettings) -> retriever_pb2.IndexSettings:
    return retriever_pb2.IndexSettings(
        embedding_model=embedding_model,
        chunk_tokens=settings.chunk_tokens,
        chunk_overlap=settings.chunk_overlap,
        fusion=_FUSIONS[settings.fusion],
        dense_weight=settings.dense_weight,
        expand=settings.expand,
        ocr=settings.ocr,
        language=language,
    )


def from_rebuild(rebuild: Rebuild) -> retriever_pb2.IndexRebuild:
    """Return the message of a rebuild's progress."""
    message = retriever_pb2.IndexRebuild(
        state=_REBUILD_STATES[rebuild.state],
        settings=_from_settings(rebuild.embedding_model, rebuild.language, rebuild.settings),
        documents_done=rebuild.done,
        documents_total=rebuild.total,
        error=rebuild.error,
    )
    message.started_at.FromDatetime(rebuild.started_at)
    if rebuild.finished_at is not None:
        message.finished_at.FromDatetime(rebuild.finished_at)
    return message


def from_embedded(embedded: Embedded) -> retriever_pb2.EmbedResponse:
    """Return the message of the vectors of texts."""
    return retriever_pb2.EmbedResponse(
        model=embedded.model,
        embeddings=[
            retriever_pb2.Embedding(
                vector=vector.vector, token_count=vector.tokens, embedded_token_count=vector.embedded_tokens
            )
            for vector in embedded.vectors
        ],
    )


def from_embedder(embedder: Embedder) -> retriever_pb2.EmbeddingModel:
    """Return the message of an embedding model."""
    return retriever_pb2.EmbeddingModel(
        name=embedder.model, dimension=embedder.dimension, max_tokens=embedder.max_tokens
    )
