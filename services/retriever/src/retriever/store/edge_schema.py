"""What is written into an Edge shard, and how conditions are asked of it.

Points are of three kinds: ``chunk`` (vectors ``dense`` and ``bm25``), ``document`` (a record, no vector), ``mark``
(no vector). All that can be asked is in two payload fields: ``facts`` holds every field and value as one keyword
(``kind:chunk``, ``reader:*``, ``metadata.year:2024``), ``numbers`` the numeric ones as objects. So a few indexes
serve all metadata, whatever the keys. A field without index would be read from every point's payload, 45 ms at
10,000 points instead of 2; and each index is a dozen files, which every flush writes through.
"""

import hashlib
import sys
import uuid
from collections.abc import Iterable, Sequence
from typing import Any, cast

import msgspec
import qdrant_edge as edge

from retriever import access
from retriever.domain import Chunk, Condition, Document, Filter, MatchAny, Range, Scalar, Version
from retriever.fields import Field, fields_of
from retriever.store.port import ChunkPoint, Scope, StoredChunk, Terms

DENSE = "dense"
SPARSE = "bm25"
CHUNK = "chunk"
DOCUMENT = "document"
MARK = "mark"
STORED_CHUNK_FIELDS = ["document_id", "number", "page", "headings", "text", "overlap", "separator"]

_LONGEST_FACT = 128
_record = msgspec.json.Decoder(Document)


def config(dimension: int, exact_up_to: int | None = None) -> edge.EdgeConfig:
    """The configuration of a shard, to create and to open it, and to build it.

    Args:
        dimension: Length of the dense vectors.
        exact_up_to: Who builds: with more chunks than this a graph (HNSW) is made to search by meaning.
    """
    return edge.EdgeConfig(
        vectors={DENSE: edge.EdgeVectorParams(dimension, edge.Distance.Cosine)},
        sparse_vectors={SPARSE: edge.EdgeSparseVectorParams(modifier=edge.Modifier.Idf)},
        max_search_threads=1,  # each shard has its own pool: a hundred would otherwise start hundreds of threads
        wal_enabled=True,
        hnsw_config=None if exact_up_to is None else _hnsw(),
        optimizers=None
        if exact_up_to is None
        else edge.EdgeOptimizersConfig(indexing_threshold=max(1, exact_up_to * dimension * 4 // 1024)),
    )


def _hnsw() -> edge.HnswIndexConfig:
    # One thread: searches need the others. Few points left by a filter (in KiB of vectors) are compared one by one.
    return edge.HnswIndexConfig(m=16, ef_construct=128, full_scan_threshold=10_000, max_indexing_threads=1)


def payload_indexes() -> list[edge.UpdateOperation]:
    """Operations that index what conditions ask for."""
    create = edge.UpdateOperation.create_field_index
    return [
        create("facts", edge.KeywordIndexParams()),
        create("numbers[].key", edge.KeywordIndexParams(nested="numbers")),
        create("numbers[].value", edge.FloatIndexParams(nested="numbers")),
    ]


def chunk_points(document: Document, points: Iterable[ChunkPoint]) -> list[edge.Point]:
    """A document's chunks, as points."""
    fields = fields_of(document)
    facts = [_kind(CHUNK), _version(document.version), *_readers(document), *_facts(fields)]
    numbers = _numbers(fields)
    made = []
    for point in points:
        chunk = point.chunk
        page: list[Field] = [("page", chunk.page)]
        payload = {
            "document_id": document.document_id,
            "facts": [*facts, *_facts(page)],
            "numbers": [*numbers, *_numbers(page)],
            "number": chunk.number,
            "page": chunk.page,
            "headings": list(chunk.headings),
            "text": chunk.text,
            "indexed_text": chunk.indexed_text,
            "overlap": chunk.overlap,
            "separator": chunk.separator,
        }
        vectors: dict[str, Any] = {
            DENSE: list(chunk.vector),
            SPARSE: edge.SparseVector(list(point.terms.indices), list(point.terms.weights)),
        }
        made.append(edge.Point(point.id, vectors, payload))
    return made


def record_point(id_: uuid.UUID, document: Document) -> edge.Point:
    """A record of the catalogue, as a point."""
    fields = fields_of(document)
    payload = {
        "document_id": document.document_id,
        "facts": [_kind(DOCUMENT), *_readers(document), *_facts(fields)],
        "numbers": _numbers(fields),
        "record": msgspec.json.encode(document).decode(),
    }
    return edge.Point(id_, {}, payload)


def mark_point(id_: uuid.UUID, document_id: str) -> edge.Point:
    """A mark, as a point."""
    return edge.Point(id_, {}, {"facts": [_kind(MARK)], "document_id": document_id})


def record(payload: dict[str, Any]) -> Document:
    """The record in a point's payload."""
    return _record.decode(payload["record"])


def stored_chunk(id_: str, payload: dict[str, Any]) -> StoredChunk:
    """The chunk in a point's payload."""
    return StoredChunk(
        id_,
        payload["document_id"],
        payload["number"],
        payload["page"],
        tuple(payload["headings"]),
        payload["text"],
        payload.get("overlap", 0),
        payload.get("separator"),
    )


def chunk_point(point: edge.Record) -> ChunkPoint:
    """The chunk in a point that was read with its vectors."""
    payload, vectors = point.payload or {}, cast("dict[str, Any]", point.vector)
    stored = stored_chunk(str(point.id), payload)
    chunk = Chunk(
        stored.number,
        stored.text,
        payload["indexed_text"],
        stored.page,
        stored.headings,
        vectors[DENSE],
        stored.overlap,
        stored.separator,
    )
    return ChunkPoint(stored.id, chunk, Terms(vectors[SPARSE].indices, vectors[SPARSE].values))


def again(point: edge.Record) -> edge.Point:
    """A point that was read, to be written to another shard."""
    return edge.Point(point.id, point.vector or {}, point.payload)


def within(scope: Scope, kind: str | None = None, ids: Sequence[str] | None = None) -> edge.Filter:
    """The filter for what is in scope. A search needs no kind: only chunks have the vectors that it compares."""
    must: list[edge.ConditionType] = []
    if kind is not None:
        must.append(_any([_kind(kind)]))
    if scope.readers is not None:
        must.append(_any([_reader(each) for each in scope.readers]))
    if scope.filter:
        must.append(_filter(scope.filter))
    if ids is not None:
        must.append(edge.HasIdCondition(set(ids)))
    must_not = [_any([_version(each) for each in scope.hidden])] if scope.hidden else None
    return edge.Filter(must=must, must_not=must_not)


def chunks_of(document_id: str, keep: int | None) -> edge.Filter:
    """The filter for a document's chunks of all generations but one."""
    must: list[edge.ConditionType] = [_any([_kind(CHUNK)]), _any([_fact("document_id", document_id)])]
    must_not = None if keep is None else [_any([_version(Version(document_id, keep))])]
    return edge.Filter(must=must, must_not=must_not)


def version_of(version: Version) -> edge.Filter:
    """The filter for the chunks of one version."""
    return edge.Filter(must=[_any([_version(version)])])


def numbered(version: Version, first: int, count: int) -> edge.Filter:
    """The filter for some chunks of one version, by their numbers."""
    numbers = edge.FieldCondition("number", range=edge.RangeFloat(gte=first, lt=first + count))
    return edge.Filter(must=[_any([_version(version)]), numbers])


def all_of(document_id: str) -> edge.Filter:
    """The filter for a document's record, and for its chunks of all generations."""
    return edge.Filter(must=[_any([_fact("document_id", document_id)])])


def _filter(tree: Filter) -> edge.Filter:
    return edge.Filter(
        must=[_condition(each) for each in tree.must],
        should=[_condition(each) for each in tree.should],
        must_not=[_condition(each) for each in tree.must_not],
    )


def _condition(condition: Condition) -> "edge.ConditionType":
    match condition:
        case Filter():
            return _filter(condition)
        case MatchAny():
            return _any([_fact(condition.field, value) for value in condition.values])
        case Range():
            bounds = edge.RangeFloat(gt=condition.gt, gte=condition.gte, lt=condition.lt, lte=condition.lte)
            named = edge.FieldCondition("key", match=edge.MatchValue(condition.field))
            return edge.NestedCondition(
                "numbers", edge.Filter(must=[named, edge.FieldCondition("value", range=bounds)])
            )


def _any(facts: list[str]) -> "edge.ConditionType":
    return edge.FieldCondition("facts", match=edge.MatchAny(facts))


# Facts of our own; they cannot meet a field's, whose name a condition has to spell (`retriever.domain.is_field`).


def _kind(kind: str) -> str:
    return f"kind:{kind}"


def _version(version: Version) -> str:
    return _keyword(f"version:{version.generation}:{version.document_id}")


def _reader(token: str) -> str:
    return _keyword(f"reader:{token}")


def _readers(document: Document) -> list[str]:
    return [_reader(token) for token in access.readers(document.access)]


def _facts(fields: Iterable[Field]) -> list[str]:
    return [_fact(name, value) for name, value in fields]


def _fact(name: str, value: Scalar) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # JSON knows one kind of number
    return _keyword(f"{name}:{value}" if _is_huge(value) else f"{name}:{msgspec.json.encode(value).decode()}")


def _keyword(fact: str) -> str:
    return fact if len(fact) <= _LONGEST_FACT else hashlib.sha256(fact.encode()).hexdigest()


def _is_huge(value: Scalar) -> bool:
    # msgspec writes integers of 64 bits.
    return isinstance(value, int) and value.bit_length() > 63


def _numbers(fields: Iterable[Field]) -> list[dict[str, Any]]:
    return [
        {"key": name, "value": _float(value)}
        for name, value in fields
        if isinstance(value, int | float) and not isinstance(value, bool)
    ]


def _float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:  # an integer beyond the floats: nearest, so that ranges still hold
        return sys.float_info.max if value > 0 else -sys.float_info.max
