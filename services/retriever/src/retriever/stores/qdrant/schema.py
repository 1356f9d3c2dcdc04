"""Converts points (`stores.payload`), leases and filters to the types of the Qdrant client."""

import base64
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from qdrant_client import models
from servicekit import keys

from retriever.domain.document import Document, Version
from retriever.domain.filter import Condition, Filter, MatchAny, Range
from retriever.domain.scope import Scope
from retriever.ports.store import ChunkPoint, StoredChunk
from retriever.stores import payload
from retriever.stores.payload import DENSE, FACTS, NUMBERS, SPARSE

INDEX = "index"
"""The kind of the point with the specification of an index."""
CREATION = "creation"
"""The kind of the point with the lease for creating an index."""
GENERATION = "generation"
UNTIL = "until"
GIVEN_UP = 1.0
"""Value of `UNTIL` after the holder gave up the lease, or removed the index."""
CLEARING = 0.5
"""Value of `UNTIL` while the points of an incarnation are being removed."""
COMMITTING = "committing"
ANALYSIS = "analysis"
NOTE = "note"
STORED_CHUNK_FIELDS = [*payload.STORED_CHUNK_FIELDS, GENERATION, ANALYSIS]

PAYLOAD_INDEXES: tuple[tuple[str, models.PayloadSchemaType], ...] = (
    (FACTS, models.PayloadSchemaType.KEYWORD),
    (f"{NUMBERS}[].key", models.PayloadSchemaType.KEYWORD),
    (f"{NUMBERS}[].value", models.PayloadSchemaType.FLOAT),
    ("number", models.PayloadSchemaType.INTEGER),
)


def chunk_points(document: Document, points: Iterable[ChunkPoint]) -> list[models.PointStruct]:
    """Return a document's chunks as points."""
    payloads = payload.ChunkPayloads(document)
    result = []
    for point in points:
        vector: dict[str, Any] = {DENSE: list(point.chunk.vector)}
        if point.terms.indices:  # the IDF must not count chunks without terms
            indices, weights = list(point.terms.indices), list(point.terms.weights)
            vector[SPARSE] = models.SparseVector(indices=indices, values=weights)
        # The generation is text, because integers of the server have 63 bits.
        content = payloads.build(point.chunk) | {
            GENERATION: str(document.generation),
            ANALYSIS: document.analysis_language,
        }
        result.append(models.PointStruct(id=point.id, vector=vector, payload=content))
    return result


def record_point(id_: str, document: Document) -> models.PointStruct:
    """Return a record of the catalogue as a point."""
    content = payload.record_payload(document)
    content[FACTS] = [*content[FACTS], generation_fact(document.generation)]
    return models.PointStruct(id=id_, vector={}, payload=content)


def lease_point(
    id_: str,
    content: payload.Payload,
    facts: Sequence[str],
    holder: str,
    until: float,
    *,
    committing: bool,
) -> models.PointStruct:
    """Return a lease as a point.

    Args:
        id_: The id of the point.
        content: Additional payload.
        facts: Additional facts for filters.
        holder: Name of the process that holds the lease.
        until: The end as a Unix time.
        committing: Whether the holder is about to commit.
    """
    numbers = [{"key": UNTIL, "value": until}]
    every = [*facts, holder_fact(holder), *([COMMITTING] if committing else [])]
    content = {**content, FACTS: every, NUMBERS: numbers, "holder": holder, UNTIL: until}
    return models.PointStruct(id=id_, vector={}, payload=content)


def generation_fact(generation: int | None) -> str:
    """Return the fact for the record that names a generation. No record has the fact for None."""
    return f"names:{generation}"


def holder_fact(holder: str) -> str:
    """Return the fact for the leases that a process holds."""
    return f"holder:{holder}"


def index_fact(tenant: str, name: str) -> str:
    """Return the fact for the point with the specification of an index."""
    return f"index:{keys.collection(tenant, name)}"


def available_to(holder: str, now: float) -> models.Filter:
    """Return the filter for leases that a process may take: leases that it holds, and expired leases."""
    has_expired = models.NestedCondition(
        nested=models.Nested(
            key=NUMBERS,
            filter=models.Filter(
                must=[
                    models.FieldCondition(key="key", match=models.MatchValue(value=UNTIL)),
                    models.FieldCondition(key="value", range=models.Range(lt=now)),
                ]
            ),
        )
    )
    return models.Filter(should=[_any([holder_fact(holder)]), has_expired])


def has_facts(*facts: str) -> models.Filter:
    """Return the filter for points that have all these facts."""
    return models.Filter(must=[_any([fact]) for fact in facts])


def note_payload(note: bytes) -> payload.Payload:
    """Return the payload of a note."""
    return {NOTE: base64.b64encode(note).decode()}


def note(content: payload.Payload) -> bytes:
    """Return the note in a payload, or empty bytes without a note."""
    return base64.b64decode(content.get(NOTE, ""))


def stored_chunk(id_: str, content: payload.Payload) -> StoredChunk:
    """Return the chunk in a payload."""
    return payload.stored_chunk(id_, content, int(content[GENERATION]), content.get(ANALYSIS))


def chunk_point(point: models.Record) -> ChunkPoint:
    """Return the chunk of a point that was read with its vectors."""
    content = point.payload or {}
    return payload.chunk_point(stored_chunk(str(point.id), content), content, cast("dict[str, Any]", point.vector))


def scope_filter(
    scope: Scope,
    kind: str,
    ids: Sequence[str] | None = None,
    unsettled: Mapping[str, int | None] | None = None,
) -> models.Filter:
    """Return the filter for a scope.

    Args:
        scope: The scope.
        kind: The kind of the points.
        ids: Limits the filter to these points.
        unsettled: For each unsettled document, by id: the generation whose chunks are visible. No chunk of a
            document with the generation None is visible.
    """
    must: list[models.Condition] = [_any([payload.kind(kind)])]
    if scope.readers is not None:
        must.append(_any([payload.reader(token) for token in scope.readers]))
    if scope.filter:
        must.append(_filter(scope.filter))
    if ids is not None:
        must.append(models.HasIdCondition(has_id=list(ids)))
    return models.Filter(must=must, must_not=[_hidden_chunks(unsettled)] if unsettled else None)


def idf_params(scope: Scope, unsettled: Mapping[str, int | None]) -> models.SearchParams | None:
    """Return the search parameters that compute the IDF from the scope's corpus.

    Return None if the corpus is the whole collection, which is the server's default.
    """
    if scope.corpus is None:
        return None
    corpus = scope_filter(scope.corpus, payload.CHUNK, unsettled=unsettled)
    return models.SearchParams(idf=models.IdfCorpusParams(corpus=corpus))


def _hidden_chunks(unsettled: Mapping[str, int | None]) -> models.Filter:
    """Return the filter for chunks of unsettled documents, except the chunks of the visible generations."""
    document_facts = [payload.fact("document_id", document_id) for document_id in unsettled]
    visible = [
        payload.version(Version(id_, generation)) for id_, generation in unsettled.items() if generation is not None
    ]
    return models.Filter(must=[_any(document_facts)], must_not=[_any(visible)] if visible else None)


def has_kind(kind: str) -> models.Filter:
    """Return the filter for all points of a kind."""
    return has_facts(payload.kind(kind))


def chunks_of(document_id: str, keep: int | None) -> models.Filter:
    """Return the filter for a document's chunks of all generations except ``keep``. None: without exception."""
    must: list[models.Condition] = [
        _any([payload.kind(payload.CHUNK)]),
        _any([payload.fact("document_id", document_id)]),
    ]
    return models.Filter(
        must=must, must_not=None if keep is None else [_any([payload.version(Version(document_id, keep))])]
    )


def chunk_range(version: Version, first: int, count: int) -> models.Filter:
    """Return the filter for ``count`` chunks of one version, from the number ``first``."""
    numbers = models.FieldCondition(key="number", range=models.Range(gte=first, lt=first + count))
    return models.Filter(must=[_any([payload.version(version)]), numbers])


def _filter(tree: Filter) -> models.Filter:
    return models.Filter(
        must=[_condition(condition) for condition in tree.must],
        should=[_condition(condition) for condition in tree.should],
        must_not=[_condition(condition) for condition in tree.must_not],
    )


def _condition(condition: Condition) -> models.Condition:
    match condition:
        case Filter():
            return _filter(condition)
        case MatchAny():
            return _any([payload.fact(condition.field, value) for value in condition.values])
        case Range():
            bounds = models.Range(gt=condition.gt, gte=condition.gte, lt=condition.lt, lte=condition.lte)
            named = models.FieldCondition(key="key", match=models.MatchValue(value=condition.field))
            valued = models.FieldCondition(key="value", range=bounds)
            return models.NestedCondition(
                nested=models.Nested(key=NUMBERS, filter=models.Filter(must=[named, valued]))
            )


def _any(facts: list[str]) -> models.FieldCondition:
    return models.FieldCondition(key=FACTS, match=models.MatchAny(any=facts))
