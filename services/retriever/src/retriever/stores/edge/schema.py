"""Converts points (`stores.payload`) and filters to the types of the Qdrant Edge engine."""

import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, cast

import qdrant_edge as edge
from servicekit import keys

from retriever.domain.document import Document, Version
from retriever.domain.filter import Condition, Filter, MatchAny, Range
from retriever.domain.scope import Scope
from retriever.ports.store import ChunkPoint
from retriever.ports.whole_documents import WholeDocument
from retriever.stores import payload
from retriever.stores.edge.point_ids import point_id
from retriever.stores.payload import CHUNK, DENSE, FACTS, NUMBERS, SPARSE
from retriever.stores.vector_storage import QUANTILE, VectorStorage


def config(dimension: int, storage: VectorStorage, exact_up_to: int | None = None) -> edge.EdgeConfig:
    """Return the configuration to open a shard, or to build one with a graph.

    Args:
        dimension: Length of the dense vectors.
        storage: The storage of the dense vectors.
        exact_up_to: The maximum number of chunks that are searched without a graph (HNSW). With more chunks, the
            engine builds a graph, and quantizes the vectors if ``storage`` says so. None, to open a shard: new
            chunks keep full vectors, and quantized vectors remain quantized.
    """
    dense = edge.EdgeVectorParams(
        dimension,
        edge.Distance.Cosine,
        memory=edge.Memory.Cold if storage.on_disk else None,
        quantization_config=None if exact_up_to is None else _quantization_config(storage),
    )
    return edge.EdgeConfig(
        vectors={DENSE: dense},
        sparse_vectors={SPARSE: edge.EdgeSparseVectorParams(modifier=edge.Modifier.Idf)},
        max_search_threads=1,  # each shard has a thread pool, so many shards would start hundreds of threads
        wal_enabled=True,
        hnsw_config=None if exact_up_to is None else _hnsw(),
        optimizers=None
        if exact_up_to is None
        else edge.EdgeOptimizersConfig(indexing_threshold=max(1, exact_up_to * dimension * 4 // 1024)),
    )


def config_without_graph(dimension: int) -> edge.EdgeConfig:
    """Return the configuration to create a shard without a graph.

    The engine reads vectors from the disk only when a search needs them. Otherwise it would read a file of 32 MiB
    each time that it opens the shard. This file is sparse: in a small shard, most of it is empty.
    """
    return config(dimension, VectorStorage(on_disk=True))


def _quantization_config(
    storage: VectorStorage,
) -> edge.ScalarQuantizationConfig | edge.BinaryQuantizationConfig | None:
    match storage.quantization:
        case "none":
            return None
        case "scalar":
            return edge.ScalarQuantizationConfig(edge.ScalarType.Int8, quantile=QUANTILE, memory=edge.Memory.Pinned)
        case "binary":
            return edge.BinaryQuantizationConfig(memory=edge.Memory.Pinned)


def rescoring_params(storage: VectorStorage) -> edge.SearchParams | None:
    """Return the search parameters that rescore quantized candidates, or None for full vectors."""
    if storage.oversampling is None:
        return None
    quantization = edge.QuantizationSearchParams(rescore=True, oversampling=storage.oversampling)
    return edge.SearchParams(quantization=quantization)


def _hnsw() -> edge.HnswIndexConfig:
    # One thread builds the graph, because searches need the others. If few points match a filter, the engine
    # compares them one by one instead of using the graph.
    return edge.HnswIndexConfig(m=16, ef_construct=128, full_scan_threshold=10_000, max_indexing_threads=1)


def chunk_points(document: Document, points: Iterable[ChunkPoint]) -> list[edge.Point]:
    """Return a document's chunks as points."""
    payloads = payload.ChunkPayloads(document)
    result = []
    for point in points:
        vectors: dict[str, Any] = {DENSE: list(point.chunk.vector)}
        if point.terms.indices:  # the IDF must not count chunks without terms
            vectors[SPARSE] = edge.SparseVector(list(point.terms.indices), list(point.terms.weights))
        result.append(edge.Point(point.id, vectors, payloads.build(point.chunk)))
    return result


def record_point(id_: uuid.UUID, document: Document) -> edge.Point:
    """Return a record of the catalogue as a point."""
    return edge.Point(id_, {}, payload.record_payload(document))


def mark_point(id_: uuid.UUID, document_id: str) -> edge.Point:
    """Return a mark as a point."""
    return edge.Point(id_, {}, payload.mark_payload(document_id))


def whole_documents(
    collection: str, documents: Iterable[WholeDocument], marked: Collection[str]
) -> list[edge.Point]:
    """Return the points of whole documents: chunks, records, and marks of the documents with ids in ``marked``."""
    points = []
    for whole in documents:
        id_ = whole.document.document_id
        if id_ in marked:
            points.append(mark_point(keys.mark_point_id(collection, id_), id_))
        points += chunk_points(whole.document, whole.points)
        points.append(record_point(keys.document_point_id(collection, id_), whole.document))
    return points


def chunk_point(point: edge.Record) -> ChunkPoint:
    """Return the chunk of a point that was read with its vectors."""
    content = point.payload or {}
    stored = payload.stored_chunk(str(point.id), content)
    return payload.chunk_point(stored, content, cast("dict[str, Any]", point.vector))


def copied(point: edge.Record) -> edge.Point:
    """Convert a record of one shard to a point that can be written to another shard."""
    return edge.Point(point.id, point.vector or {}, point.payload)


def scope_filter(
    scope: Scope,
    kind: str | None = None,
    ids: Sequence[str] | None = None,
    unsettled: Mapping[str, int | None] | None = None,
) -> edge.Filter:
    """Return the filter for the points in a scope.

    Args:
        scope: The scope.
        kind: The kind of the points. Searches need none, because only chunks have vectors.
        ids: Limits the filter to these points.
        unsettled: For each marked document, by id: the generation whose chunks are visible. No chunk of a document
            with the generation None is visible.
    """
    must: list[edge.ConditionType] = []
    if kind is not None:
        must.append(_any([payload.kind(kind)]))
    if scope.readers is not None:
        must.append(_any([payload.reader(token) for token in scope.readers]))
    if scope.filter:
        must.append(_filter(scope.filter))
    if ids is not None:
        must.append(edge.HasIdCondition({point_id(id_) for id_ in ids}))
    return edge.Filter(must=must, must_not=[_hidden_chunks(unsettled)] if unsettled else None)


def idf_params(scope: Scope, unsettled: Mapping[str, int | None]) -> edge.SearchParams | None:
    """Return the search parameters that compute the IDF from the scope's corpus.

    Return None if the corpus is the whole collection, which is the engine's default.
    """
    if scope.corpus is None:
        return None
    return edge.SearchParams(idf=edge.IdfParams(scope_filter(scope.corpus, unsettled=unsettled)))


def _hidden_chunks(unsettled: Mapping[str, int | None]) -> edge.Filter:
    """Return the filter for unsettled documents' chunks, except the chunks of the visible generations.

    The filter also matches the records of these documents. So searches for records do not use it.
    """
    document_facts = [payload.fact("document_id", document_id) for document_id in unsettled]
    visible = [
        payload.version(Version(id_, generation)) for id_, generation in unsettled.items() if generation is not None
    ]
    return edge.Filter(must=[_any(document_facts)], must_not=[_any(visible)] if visible else None)


def chunks_of(document_id: str, keep: int | None) -> edge.Filter:
    """Return the filter for a document's chunks of all generations except ``keep``. None: without exception."""
    must: list[edge.ConditionType] = [_any([payload.kind(CHUNK)]), _any([payload.fact("document_id", document_id)])]
    must_not = None if keep is None else [_any([payload.version(Version(document_id, keep))])]
    return edge.Filter(must=must, must_not=must_not)


def chunks_of_version(version: Version) -> edge.Filter:
    """Return the filter for the chunks of one version."""
    return edge.Filter(must=[_any([payload.version(version)])])


def chunk_range(version: Version, first: int, count: int) -> edge.Filter:
    """Return the filter for ``count`` chunks of one version, from the number ``first``."""
    numbers = edge.FieldCondition("number", range=edge.RangeFloat(gte=first, lt=first + count))
    return edge.Filter(must=[_any([payload.version(version)]), numbers])


def points_of_document(document_id: str) -> edge.Filter:
    """Return the filter for a document's record and its chunks of all generations."""
    return edge.Filter(must=[_any([payload.fact("document_id", document_id)])])


def _filter(tree: Filter) -> edge.Filter:
    return edge.Filter(
        must=[_condition(condition) for condition in tree.must],
        should=[_condition(condition) for condition in tree.should],
        must_not=[_condition(condition) for condition in tree.must_not],
    )


def _condition(condition: Condition) -> "edge.ConditionType":
    match condition:
        case Filter():
            return _filter(condition)
        case MatchAny():
            return _any([payload.fact(condition.field, value) for value in condition.values])
        case Range():
            bounds = edge.RangeFloat(gt=condition.gt, gte=condition.gte, lt=condition.lt, lte=condition.lte)
            named = edge.FieldCondition("key", match=edge.MatchValue(condition.field))
            return edge.NestedCondition(
                NUMBERS, edge.Filter(must=[named, edge.FieldCondition("value", range=bounds)])
            )


def _any(facts: list[str]) -> "edge.ConditionType":
    return edge.FieldCondition(FACTS, match=edge.MatchAny(facts))
