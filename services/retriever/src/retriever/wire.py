"""Messages of ``retriever/v1`` ↔ the domain. The only module, with `servicer`, that knows the wire."""

import math
from collections.abc import Sequence

import msgspec
from causeway.retriever.v1 import document_pb2, filter_pb2, retriever_pb2
from servicekit.errors import InvalidRequest
from servicekit.principal import Principal

from retriever.domain import (
    AccessControl,
    Begin,
    Chunk,
    Commit,
    Condition,
    Document,
    Filter,
    IndexSummary,
    MatchAny,
    Mode,
    Outcome,
    Passage,
    Query,
    Range,
    Retrieved,
    Scalar,
    Source,
    Upserted,
    UpsertStep,
    is_field,
)

MAX_CONDITIONS = 10_000
"""Conditions and values in one filter."""

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


def to_filter(message: filter_pb2.Filter) -> Filter:
    """A filter.

    Raises:
        InvalidRequest: Naming the condition that is wrong, for example ``filter.must[0].match_any.field``.
    """
    return _Filters().filter(message, "filter")


class _Filters:
    """Reads one filter, with a limit on what it holds in all."""

    def __init__(self) -> None:
        self._left = MAX_CONDITIONS

    def filter(self, message: filter_pb2.Filter, path: str) -> Filter:
        return Filter(
            self._all(message.must, f"{path}.must"),
            self._all(message.should, f"{path}.should"),
            self._all(message.must_not, f"{path}.must_not"),
        )

    def _all(self, messages: Sequence[filter_pb2.Condition], path: str) -> tuple[Condition, ...]:
        self._count(len(messages))
        return tuple(self._condition(each, f"{path}[{place}]") for place, each in enumerate(messages))

    def _condition(self, message: filter_pb2.Condition, path: str) -> Condition:
        match message.WhichOneof("condition"):
            case "match_any":
                return self._match_any(message.match_any, f"{path}.match_any")
            case "range":
                return _range(message.range, f"{path}.range")
            case "filter":
                return self.filter(message.filter, f"{path}.filter")
            case _:
                raise InvalidRequest("The condition is empty.", field=path)

    def _match_any(self, message: filter_pb2.MatchAny, path: str) -> MatchAny:
        self._count(len(message.json_values))
        values = (_scalar(each, f"{path}.json_values[{n}]") for n, each in enumerate(message.json_values))
        return MatchAny(_field(message.field, path), tuple(values))

    def _count(self, more: int) -> None:
        self._left -= more
        if self._left < 0:
            raise InvalidRequest(f"A filter has at most {MAX_CONDITIONS} conditions and values.", field="filter")


def _range(message: filter_pb2.Range, path: str) -> Range:
    bounds = {name: getattr(message, name) for name in ("gt", "gte", "lt", "lte") if message.HasField(name)}
    if not bounds or any(math.isnan(bound) for bound in bounds.values()):
        raise InvalidRequest("A range has at least one bound, and bounds are numbers.", field=path)
    return Range(_field(message.field, path), **bounds)


def _field(name: str, path: str) -> str:
    if not is_field(name):
        raise InvalidRequest(
            f"There is no field {name!r}. Fields are document_id, sourcefile, category, language, page and "
            "metadata.<key>.",
            field=f"{path}.field",
        )
    return name


def _scalar(json: str, path: str) -> Scalar:
    try:
        value: Scalar = msgspec.json.decode(json, type=str | int | float | bool)
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"Not a JSON string, number, true or false: {json[:100]!r}", field=path) from error
    return value


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
                _to_document(request.begin.document),
                request.begin.embedding_model,
                request.begin.dimension,
            )
        case "chunks":
            return [_to_chunk(each) for each in request.chunks.chunks]
        case "commit":
            return Commit(request.commit.chunk_count)
        case _:
            raise InvalidRequest("The message holds no step.", field="step")


def _to_document(message: document_pb2.Document) -> Document:
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
    )


def _to_chunk(message: document_pb2.Chunk) -> Chunk:
    return Chunk(
        message.number,
        message.text,
        message.indexed_text,
        message.page,
        tuple(message.headings),
        list(message.vector),
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
        chunk_count=document.chunk_count,
    )
    message.updated_at.FromDatetime(document.updated_at)
    return message


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
