"""An index in an Edge shard: implements `ports.store.Collection` with the embedded engine.

Each call of the engine holds the GIL, even in a thread. So calls run on the event loop: reads directly, because
they take one or two milliseconds, and bulk work in slices (`Scheduler`). Only `sync`, the bulk methods, methods
that write or remove the manifest, and writers that wait for the write lock yield to the loop. A sequence of other
calls is atomic.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import qdrant_edge as edge
from servicekit import keys

from retriever.concurrency.scheduler import Scheduler
from retriever.domain.document import Document, Version
from retriever.domain.index import Contents, IndexSettings, IndexSpec
from retriever.domain.scope import EVERYTHING, Scope
from retriever.ports.store import ChunkPoint, StoredChunk, Terms
from retriever.ports.whole_documents import WholeDocument
from retriever.stores import payload
from retriever.stores.edge import point_ids, schema
from retriever.stores.edge.builder import Builder
from retriever.stores.edge.compaction import Compactor
from retriever.stores.edge.marks import Marks
from retriever.stores.edge.read_cache import ShardReads
from retriever.stores.edge.shard import LiveShard

_WRITE_SLICE = 16  # chunks, about 3 ms
_DELETE_SLICE = 64  # chunks, about 1 ms
_READ_SLICE = 1000  # ids, about 7 ms
_RECORDS_SLICE = 200  # records, about 3 ms
_READ_POINTS_SLICE = 64  # chunks with their vectors, about 1 ms
_ID = "document_id"


class EdgeCollection:
    """A collection of the port (`ports.store.Collection`). `stores.edge.store.EdgeStore` creates it."""

    def __init__(
        self,
        live: LiveShard,
        scheduler: Scheduler,
        builder: Builder,
        compactor: Compactor,
        check_free_space: Callable[[], None],
        reads: ShardReads,
    ) -> None:
        self._live = live
        self._scheduler = scheduler
        self._builder = builder
        self._compactor = compactor
        self._check_free_space = check_free_space
        self._reads = reads
        self._marks = Marks(live.shard, live.name)
        self._revision = 0

    @property
    def spec(self) -> IndexSpec:
        """The specification of the index."""
        return self._live.spec

    @property
    def live(self) -> LiveShard:
        """The shard of the collection."""
        return self._live

    @property
    def is_published(self) -> bool:
        """Whether the collection exists and will exist when the store is opened again."""
        return self._live.is_published and not self._live.is_closed

    @property
    def is_closed(self) -> bool:
        """Whether the collection was dropped, replaced or closed."""
        return self._live.is_closed

    @property
    def revision(self) -> int:
        """A number that changes when a record changes or a document is marked."""
        return self._revision

    def note_stale_read(self, document_id: str | None = None) -> None:
        """Change the revision."""
        del document_id  # this store never applies a write late
        self._revision += 1

    @property
    def remote(self) -> None:
        """None: the engine is in this process."""

    async def is_current(self, *, wait: bool = True) -> bool:
        """Return whether the collection exists. No other process can replace it."""
        del wait  # the state is always known
        return not self._live.is_closed

    async def publish(self, replaced: "EdgeCollection | None" = None) -> None:
        """Write the manifest in place of the other collection's, and compact the index if this is due."""
        await self._live.publish(replaced._live if replaced else None)
        self._compactor.start_if_due(self._live)

    async def drop(self) -> None:
        """Remove the manifest, then the other files."""
        await self._live.drop()

    async def aclose(self) -> None:
        """Close the shard if it is open."""
        await self._live.aclose()

    async def dense(
        self, vector: Sequence[float], limit: int, scope: Scope, ids: Sequence[str] | None = None
    ) -> dict[str, float]:
        """Return the highest cosines."""
        query = edge.Query.Nearest(list(vector), using=payload.DENSE)
        return self._search(query, limit, scope, ids, schema.rescoring_params(self._live.current().vectors))

    async def sparse(
        self, terms: Terms, limit: int, scope: Scope, ids: Sequence[str] | None = None
    ) -> dict[str, float]:
        """Return the highest BM25 scores."""
        if not terms.indices:
            return {}
        vector = edge.SparseVector(list(terms.indices), list(terms.weights))
        corpus = schema.idf_params(scope, self._marks.visible_generations)
        return self._search(edge.Query.Nearest(vector, using=payload.SPARSE), limit, scope, ids, corpus)

    def _search(
        self,
        query: edge.Query,
        limit: int,
        scope: Scope,
        ids: Sequence[str] | None,
        params: edge.SearchParams | None,
    ) -> dict[str, float]:
        request = edge.QueryRequest(
            limit=limit,
            query=query,
            filter=schema.scope_filter(scope, ids=ids, unsettled=self._marks.visible_generations),
            params=params,
            with_payload=False,
        )
        found: list[Any] = self._shard.query(request)  # all ids in this store are UUIDs
        return {point_ids.text(point.id.int): point.score for point in found}

    async def chunks(self, ids: Sequence[str]) -> Mapping[str, StoredChunk]:
        """Return chunks by id."""
        shard = self._shard

        def read(missing: Sequence[str]) -> list[StoredChunk]:
            points = shard.retrieve(list(missing), with_payload=payload.STORED_CHUNK_FIELDS, with_vector=False)
            return [payload.stored_chunk(str(point.id), point.payload or {}) for point in points]

        return self._reads.chunks(ids, read)

    async def chunks_of(self, version: Version, first: int, count: int) -> list[StoredChunk]:
        """Return some chunks of a version, in order."""
        async with self._scheduler.slice():
            points, _ = self._shard.scroll(
                edge.ScrollRequest(
                    limit=count,
                    filter=schema.chunk_range(version, first, count),
                    with_payload=payload.STORED_CHUNK_FIELDS,
                )
            )
        found = (payload.stored_chunk(str(point.id), point.payload or {}) for point in points)
        return sorted(found, key=lambda chunk: chunk.number)

    async def points_of(self, version: Version) -> AsyncIterator[list[ChunkPoint]]:
        """Yield all chunks of a version with their vectors, read in slices."""
        filter_ = schema.chunks_of_version(version)
        offset: Any = None
        while True:
            async with self._scheduler.slice():
                points, offset = self._shard.scroll(
                    edge.ScrollRequest(
                        offset=offset, limit=_READ_POINTS_SLICE, filter=filter_, with_payload=True, with_vector=True
                    )
                )
            yield [schema.chunk_point(point) for point in points]
            if offset is None:
                return

    async def count_chunks(self, scope: Scope) -> int:
        """Return the number of chunks in scope."""
        filter_ = schema.scope_filter(scope, payload.CHUNK, unsettled=self._marks.visible_generations)
        return self._shard.count(edge.CountRequest(filter=filter_))

    async def add_chunks(self, document: Document, points: Sequence[ChunkPoint]) -> None:
        """Store chunks, a few at a time."""
        for start in range(0, len(points), _WRITE_SLICE):
            async with self._live.writing(document.document_id), self._scheduler.slice():
                self._check_free_space()
                self._reads.forget_chunks(point.id for point in points[start : start + _WRITE_SLICE])
                self._live.upsert(schema.chunk_points(document, points[start : start + _WRITE_SLICE]))
        await self._live.index_fields()

    async def put_documents(self, documents: Sequence[WholeDocument]) -> list[str]:
        """Store documents by one operation of the engine, which its log records atomically."""
        ids = [whole.document.document_id for whole in documents]
        async with self._live.writing(*ids), self._scheduler.slice():
            self._check_free_space()
            visible = self._marks.visible_generations
            previous = {whole.document.document_id for whole in documents if whole.previous is not None}
            replacing = [id_ for id_ in ids if id_ in previous or id_ in visible]
            points = schema.whole_documents(self._live.name, documents, replacing)
            for whole in documents:
                self._reads.forget_chunks(point.id for point in whole.points)
                self._reads.forget_record(whole.document.document_id)
            self._live.upsert(points)
            for whole in documents:
                if whole.document.document_id in replacing:
                    self._marks.hold(whole.document.document_id, whole.document.generation)
            self._revision += 1
        await self._live.index_fields()
        self._compactor.start_if_due(self._live)
        return replacing

    async def remove_chunks(self, document_id: str, keep: int | None) -> None:
        """Remove chunks, a few at a time."""
        filter_ = schema.chunks_of(document_id, keep)
        request = edge.ScrollRequest(limit=_DELETE_SLICE, filter=filter_, with_payload=False)
        while True:
            async with self._live.writing(document_id), self._scheduler.slice():
                points, _ = self._shard.scroll(request)
                if not points:
                    return
                self._reads.forget_chunks(str(point.id) for point in points)
                self._live.delete([point.id for point in points])

    async def put_record(self, document: Document) -> None:
        """Write a record."""
        id_ = keys.document_point_id(self._live.name, document.document_id)
        async with self._live.writing(document.document_id):
            self._reads.forget_record(document.document_id)
            self._live.upsert([schema.record_point(id_, document)])
            self._marks.set_generation(document.document_id, document.generation)
            self._revision += 1

    async def remove_record(self, document_id: str) -> None:
        """Remove a record."""
        async with self._live.writing(document_id):
            self._reads.forget_record(document_id)
            self._live.delete([keys.document_point_id(self._live.name, document_id)])
            self._marks.set_generation(document_id, None)
            self._revision += 1

    async def records(self, document_ids: Sequence[str]) -> Mapping[str, Document]:
        """Return records by document id."""
        shard = self._shard

        def read(missing: Sequence[str]) -> list[Document]:
            ids: list[edge.PointId] = [keys.document_point_id(self._live.name, id_) for id_ in missing]
            points = shard.retrieve(ids, with_payload=["record"], with_vector=False)
            return [payload.decode_record(point.payload or {}) for point in points]

        return self._reads.records(document_ids, read)

    async def document_ids(self, scope: Scope) -> list[str]:
        """Return the ids of records, read in slices."""
        condition = schema.scope_filter(scope, payload.DOCUMENT)
        ids: list[str] = []
        offset: Any = None
        while True:
            async with self._scheduler.slice():
                page = edge.ScrollRequest(offset=offset, limit=_READ_SLICE, filter=condition, with_payload=[_ID])
                points, offset = self._shard.scroll(page)
                ids += [(point.payload or {})[_ID] for point in points]
            if offset is None:
                return ids

    async def count_documents(self, scope: Scope) -> int:
        """Return the number of records in scope."""
        return self._shard.count(edge.CountRequest(filter=schema.scope_filter(scope, payload.DOCUMENT)))

    async def mark(self, document_id: str) -> None:
        """Mark a document."""
        point = schema.mark_point(keys.mark_point_id(self._live.name, document_id), document_id)
        async with self._live.writing(document_id):
            self._live.upsert([point])
            self._marks.hold(document_id, self._marks.generation(self._shard, document_id))
            self._revision += 1

    async def unmark(self, document_id: str) -> None:
        """Remove a document's mark."""
        async with self._live.writing(document_id):
            self._live.delete([keys.mark_point_id(self._live.name, document_id)])
            self._marks.release(document_id)
        self._compactor.start_if_due(self._live)

    async def marked(self) -> list[str]:
        """Return the ids of the marked documents."""
        self._live.current()
        return list(self._marks.visible_generations)

    async def abandoned(self) -> list[str]:
        """Return the ids of marked documents that this process has not marked itself."""
        self._live.current()
        return self._marks.abandoned()

    async def versions(self) -> Mapping[str, int]:
        """Return the generation of every record, read in slices."""
        ids = await self.document_ids(EVERYTHING)
        found: dict[str, int] = {}
        for start in range(0, len(ids), _RECORDS_SLICE):
            async with self._scheduler.slice():
                records = await self.records(ids[start : start + _RECORDS_SLICE])
            found.update({record.document_id: record.generation for record in records.values()})
        return found

    async def freeze(self, seconds: float) -> None:
        """Do nothing, because no other process writes to the store."""

    async def thaw(self) -> None:
        """Do nothing."""

    async def put_settings(self, settings: IndexSettings) -> None:
        """Store the settings in the manifest."""
        await self._live.put_settings(settings)

    async def put_note(self, note: bytes) -> None:
        """Store a note in the manifest."""
        await self._live.put_note(note)

    async def note(self) -> bytes:
        """Return the note in the manifest."""
        self._live.current()
        return self._live.note

    async def sync(self) -> None:
        """Sync the log to the disk."""
        await self._live.sync(self._marks.held_count - 1)

    async def compact(self) -> None:
        """Rebuild the shard in a child process."""
        self._live.current()
        await self._compactor.compact(self._live)

    async def persist(self, directory: Path) -> Contents:
        """Copy the shard, and write the snapshot in a child process."""
        async with self._builder.working_directory(2 * self._live.size()) as working_directory:
            await self._live.copy(working_directory / "copy", to_rebuild=False)
            vectors = self._live.current().vectors
            done = await self._builder.build("persist", working_directory / "copy", directory, self.spec, vectors)
        return done.contents

    @property
    def _shard(self) -> edge.EdgeShard:
        return self._live.shard
