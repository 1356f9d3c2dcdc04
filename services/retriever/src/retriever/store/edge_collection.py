"""One index in an Edge shard: what the port asks, in the engine's terms.

Every call of the engine holds the interpreter's lock, in a thread as well (flush, load and close too), so calls
run on the event loop: reads at once, since they take a millisecond or two, bulk work in slices (`retriever.pace`).
Nothing but `sync`, the bulk methods, and writers that wait for a shard to be copied or replaced gives up the loop,
and those wait before they write; hence what is called in a row without them is atomic for all others.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import qdrant_edge as edge
from servicekit import keys

from retriever.domain import Contents, Document, IndexSpec, Version
from retriever.fusion import Hit
from retriever.pace import Pace
from retriever.store import edge_schema as schema
from retriever.store.building import Builder
from retriever.store.compaction import Compactor
from retriever.store.edge_shard import LiveShard
from retriever.store.port import EVERYTHING, ChunkPoint, Scope, StoredChunk, Terms

_WRITE_SLICE = 16  # chunks, about 3 ms
_DELETE_SLICE = 64  # chunks, about 1 ms
_READ_SLICE = 1000  # ids, about 7 ms
_READ_POINTS_SLICE = 64  # chunks with their vectors, about 1 ms


class EdgeCollection:
    """See `retriever.store.port.Collection`. Made by `retriever.store.edge.EdgeStore`."""

    def __init__(
        self, live: LiveShard, pace: Pace, builder: Builder, compactor: Compactor, check_room: Callable[[], None]
    ) -> None:
        self._live = live
        self._pace = pace
        self._builder = builder
        self._compactor = compactor
        self._check_room = check_room

    @property
    def spec(self) -> IndexSpec:
        """What it is."""
        return self._live.spec

    @property
    def is_closed(self) -> bool:
        """Whether it is gone: dropped, replaced or closed."""
        return self._live.is_closed

    async def publish(self, instead_of: "EdgeCollection | None" = None) -> None:
        """Writes the manifest, which takes the place of the other's."""
        await self._live.publish(instead_of._live if instead_of else None)

    async def drop(self) -> None:
        """Removes the manifest, then all else."""
        await self._live.drop()

    async def aclose(self) -> None:
        """Closes the shard, if it is open."""
        await self._live.aclose()

    async def dense(
        self, vector: Sequence[float], limit: int, scope: Scope, ids: Sequence[str] | None = None
    ) -> list[Hit]:
        """The nearest chunks by cosine."""
        return self._search(edge.Query.Nearest(list(vector), using=schema.DENSE), limit, scope, ids)

    async def sparse(self, terms: Terms, limit: int, scope: Scope, ids: Sequence[str] | None = None) -> list[Hit]:
        """The best chunks by BM25."""
        if not terms.indices:
            return []
        vector = edge.SparseVector(list(terms.indices), list(terms.weights))
        return self._search(edge.Query.Nearest(vector, using=schema.SPARSE), limit, scope, ids)

    def _search(self, query: edge.Query, limit: int, scope: Scope, ids: Sequence[str] | None) -> list[Hit]:
        request = edge.QueryRequest(
            limit=limit, query=query, filter=schema.within(scope, ids=ids), with_payload=False
        )
        return [Hit(str(point.id), point.score) for point in self._shard.query(request)]

    async def chunks(self, ids: Sequence[str]) -> Mapping[str, StoredChunk]:
        """Chunks by id."""
        points = self._shard.retrieve(list(ids), with_payload=schema.STORED_CHUNK_FIELDS, with_vector=False)
        return {str(point.id): schema.stored_chunk(str(point.id), point.payload or {}) for point in points}

    async def chunks_of(self, version: Version, first: int, count: int) -> list[StoredChunk]:
        """Some chunks of a version, in order."""
        async with self._pace.slice():
            points, _ = self._shard.scroll(
                edge.ScrollRequest(
                    limit=count,
                    filter=schema.numbered(version, first, count),
                    with_payload=schema.STORED_CHUNK_FIELDS,
                )
            )
        found = [schema.stored_chunk(str(point.id), point.payload or {}) for point in points]
        return sorted(found, key=lambda chunk: chunk.number)

    async def points_of(self, version: Version) -> AsyncIterator[list[ChunkPoint]]:
        """All chunks of a version with their vectors, read in slices."""
        wanted = schema.version_of(version)
        offset: Any = None
        while True:
            async with self._pace.slice():
                points, offset = self._shard.scroll(
                    edge.ScrollRequest(
                        offset=offset, limit=_READ_POINTS_SLICE, filter=wanted, with_payload=True, with_vector=True
                    )
                )
            yield [schema.chunk_point(point) for point in points]
            if offset is None:
                return

    async def count_chunks(self, scope: Scope) -> int:
        """Number of chunks in scope."""
        return self._shard.count(edge.CountRequest(filter=schema.within(scope, schema.CHUNK)))

    async def add_chunks(self, document: Document, points: Sequence[ChunkPoint]) -> None:
        """Stores chunks, a few at a time."""
        for start in range(0, len(points), _WRITE_SLICE):
            async with self._live.writing(document.document_id), self._pace.slice():
                self._check_room()
                self._live.upsert(schema.chunk_points(document, points[start : start + _WRITE_SLICE]))

    async def remove_chunks(self, document_id: str, keep: int | None) -> None:
        """Removes chunks, a few at a time."""
        others = edge.ScrollRequest(
            limit=_DELETE_SLICE, filter=schema.chunks_of(document_id, keep), with_payload=False
        )
        while True:
            async with self._live.writing(document_id), self._pace.slice():
                points, _ = self._shard.scroll(others)
                if not points:
                    return
                self._live.delete([point.id for point in points])

    async def put_record(self, document: Document) -> None:
        """Writes a record."""
        id_ = keys.document_point_id(self._live.name, document.document_id)
        async with self._live.writing(document.document_id):
            self._live.upsert([schema.record_point(id_, document)])

    async def remove_record(self, document_id: str) -> None:
        """Removes a record."""
        async with self._live.writing(document_id):
            self._live.delete([keys.document_point_id(self._live.name, document_id)])

    async def records(self, document_ids: Sequence[str]) -> Mapping[str, Document]:
        """Records by document id."""
        ids: list[edge.PointId] = [keys.document_point_id(self._live.name, each) for each in document_ids]
        points = self._shard.retrieve(ids, with_payload=["record"], with_vector=False)
        found = (schema.record(point.payload or {}) for point in points)
        return {each.document_id: each for each in found}

    async def document_ids(self, scope: Scope) -> list[str]:
        """Ids of records, read in slices."""
        return await self._ids(schema.within(scope, schema.DOCUMENT))

    async def count_documents(self, scope: Scope) -> int:
        """Number of records in scope."""
        return self._shard.count(edge.CountRequest(filter=schema.within(scope, schema.DOCUMENT)))

    async def mark(self, document_id: str) -> None:
        """Marks a document."""
        point = schema.mark_point(keys.mark_point_id(self._live.name, document_id), document_id)
        async with self._live.writing(document_id):
            self._live.upsert([point])

    async def unmark(self, document_id: str) -> None:
        """Removes a document's mark: what was done to it is done."""
        async with self._live.writing(document_id):
            self._live.delete([keys.mark_point_id(self._live.name, document_id)])
        self._compactor.consider(self._live)

    async def marked(self) -> list[str]:
        """Ids of the marked documents, read in slices."""
        return await self._ids(schema.within(EVERYTHING, schema.MARK))

    async def sync(self) -> None:
        """Writes the log through to the disk."""
        await self._live.sync()

    async def compact(self) -> None:
        """Rebuilds the shard in a child process."""
        _ = self._shard
        await self._compactor.compact(self._live)

    async def persist(self, directory: Path) -> Contents:
        """Copies the shard, and writes the snapshot in a child process."""
        async with self._builder.workplace(2 * self._live.size()) as workplace:
            await self._live.copy(workplace / "copy", to_rebuild=False)
            done = await self._builder.build("persist", workplace / "copy", directory, self.spec)
        return done.contents

    async def _ids(self, condition: edge.Filter) -> list[str]:
        ids: list[str] = []
        offset: Any = None
        while True:
            async with self._pace.slice():
                points, offset = self._shard.scroll(
                    edge.ScrollRequest(
                        offset=offset, limit=_READ_SLICE, filter=condition, with_payload=["document_id"]
                    )
                )
                ids += [(point.payload or {})["document_id"] for point in points]
            if offset is None:
                return ids

    @property
    def _shard(self) -> edge.EdgeShard:
        return self._live.shard
