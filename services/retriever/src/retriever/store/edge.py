"""Qdrant Edge: the engine in the process, one shard on disk for each index. One process owns the directory.

::

    <directory>/LOCK
    <directory>/<collection>/index.json      what the index is, and which generation of its shard is the current one
    <directory>/<collection>/<generation>/   the shard

``index.json`` is replaced by one rename, so a collection comes and goes, or a rebuilt shard takes over, in a step.
A directory without it was never published, or is half removed: opening clears it away.

Every call holds the interpreter's lock, in a thread as well (flush, load and close too), so calls run on the event
loop: reads at once, since they take a millisecond or two, and bulk writes in slices (`retriever.pace`). Nothing but
`sync` and the bulk methods gives up the loop, hence what is called in a row without them is atomic for all others.
"""

import asyncio
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import qdrant_edge as edge
from servicekit import keys
from servicekit.errors import Unavailable

from retriever.domain import Document, IndexSpec, no_such_index
from retriever.fusion import Hit
from retriever.pace import Pace
from retriever.store import edge_schema as schema
from retriever.store import files
from retriever.store.port import EVERYTHING, ChunkPoint, Scope, StoredChunk, Terms

_MANIFEST = "index.json"
_WRITE_SLICE = 16  # chunks, about 3 ms
_DELETE_SLICE = 64  # chunks, about 1 ms
_READ_SLICE = 1000  # ids, about 7 ms
_FLUSH_EVERY = 20_000
"""Points after which the log is flushed into the segments. A flush writes every file of the shard through and
blocks meanwhile, 50 ms on an idle disk and 500 on a busy one, so it is rare; opening after a crash replays at most
so many, in about five seconds. What is acknowledged is safe before: `sync`."""


class _Manifest(msgspec.Struct, frozen=True):
    spec: IndexSpec
    generation: int


class EdgeStore:
    """All indexes under one directory; see `retriever.store.port.Store`.

    Args:
        directory: Made where it does not exist.
        pace: Shared by all that blocks the loop in slices.
        min_free_bytes: With less room on the disk nothing is written any more: the engine maps its files into
            memory, and a full disk would end the process.

    Raises:
        Unavailable: Another process has the directory open, or an index of it is damaged.
    """

    def __init__(self, directory: Path, pace: Pace, min_free_bytes: int = 0) -> None:
        self._directory = directory
        self._pace = pace
        self._min_free_bytes = min_free_bytes
        self._lock = files.own(directory)
        try:
            self._opened = {collection.name: collection for collection in self._load()}
        except BaseException:
            files.disown(self._lock)
            raise

    async def collections(self) -> Sequence["EdgeCollection"]:
        """The collections that were there when the store was opened."""
        return tuple(self._opened.values())

    async def create(self, spec: IndexSpec) -> "EdgeCollection":
        """A new collection, not published."""
        name = keys.collection(spec.tenant, spec.name)
        directory = self._directory / name
        shard_directory = directory / "1"
        shutil.rmtree(directory, ignore_errors=True)  # what a failed creation left
        shard_directory.mkdir(parents=True)
        async with self._pace.slice():
            shard = edge.EdgeShard.create(str(shard_directory), schema.config(spec.dimension))
        for operation in schema.payload_indexes():
            async with self._pace.slice():
                shard.update(operation)
        collection = EdgeCollection(directory, _Manifest(spec, 1), shard, self._pace, self._check_room)
        self._opened[name] = collection
        return collection

    async def aclose(self) -> None:
        """Closes all shards and gives the directory up."""
        for collection in self._opened.values():
            await collection.aclose()
        self._opened.clear()
        files.disown(self._lock)

    def _load(self) -> list["EdgeCollection"]:
        collections = []
        for directory in sorted(self._directory.iterdir()):
            if not directory.is_dir():
                continue
            if not (directory / _MANIFEST).exists():
                shutil.rmtree(directory)
                continue
            try:
                manifest = msgspec.json.decode((directory / _MANIFEST).read_bytes(), type=_Manifest)
                shard_directory = directory / str(manifest.generation)
                shard = edge.EdgeShard.load(str(shard_directory), schema.config(manifest.spec.dimension))
            except Exception as error:  # Edge raises nothing more special
                raise Unavailable(f"The index in {directory} cannot be opened.") from error
            collections.append(EdgeCollection(directory, manifest, shard, self._pace, self._check_room))
        return collections

    def _check_room(self) -> None:
        if shutil.disk_usage(self._directory).free < self._min_free_bytes:
            raise Unavailable("The store's disk is full.", retry_after=60)


class EdgeCollection:
    """One index in a shard; see `retriever.store.port.Collection`."""

    def __init__(
        self,
        directory: Path,
        manifest: _Manifest,
        shard: edge.EdgeShard,
        pace: Pace,
        check_room: Callable[[], None],
    ) -> None:
        self.spec = manifest.spec
        self._directory = directory
        self._shard_directory = directory / str(manifest.generation)
        self._manifest = manifest
        self._open_shard: edge.EdgeShard | None = shard
        self._pace = pace
        self._check_room = check_room
        self.name = keys.collection(self.spec.tenant, self.spec.name)
        self._unflushed = 0
        self._syncing = asyncio.Lock()
        self._next_sync: asyncio.Task[None] | None = None

    async def publish(self) -> None:
        """Writes the manifest, after the shard's new files are through to the disk."""
        async with self._syncing:
            if self._open_shard is None:
                raise no_such_index(self.spec.name)
            await asyncio.to_thread(files.sync_tree, self._shard_directory)
            await asyncio.to_thread(files.replace, self._directory / _MANIFEST, msgspec.json.encode(self._manifest))

    async def drop(self) -> None:
        """Removes the manifest, then all else."""
        shard, self._open_shard = self._shard, None
        async with self._syncing:
            await asyncio.to_thread(files.unlink, self._directory / _MANIFEST)
            shard.close()
            await asyncio.to_thread(shutil.rmtree, self._directory)

    async def aclose(self) -> None:
        """Closes the shard, if it is open."""
        if self._open_shard is not None:
            shard, self._open_shard = self._open_shard, None
            async with self._syncing:
                shard.close()

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

    async def count_chunks(self, scope: Scope) -> int:
        """Number of chunks in scope."""
        return self._shard.count(edge.CountRequest(filter=schema.within(scope, schema.CHUNK)))

    async def add_chunks(self, document: Document, points: Sequence[ChunkPoint]) -> None:
        """Stores chunks, a few at a time."""
        for start in range(0, len(points), _WRITE_SLICE):
            async with self._pace.slice():
                self._check_room()
                made = schema.chunk_points(document, points[start : start + _WRITE_SLICE])
                self._write(edge.UpdateOperation.upsert_points(made), len(made))

    async def remove_chunks(self, document_id: str, keep: int | None) -> None:
        """Removes chunks, a few at a time."""
        others = edge.ScrollRequest(
            limit=_DELETE_SLICE, filter=schema.chunks_of(document_id, keep), with_payload=False
        )
        while True:
            async with self._pace.slice():
                points, _ = self._shard.scroll(others)
                if not points:
                    return
                self._write(edge.UpdateOperation.delete_points([point.id for point in points]), len(points))

    async def put_record(self, document: Document) -> None:
        """Writes a record."""
        point = schema.record_point(keys.document_point_id(self.name, document.document_id), document)
        self._write(edge.UpdateOperation.upsert_points([point]), 1)

    async def remove_record(self, document_id: str) -> None:
        """Removes a record."""
        id_ = keys.document_point_id(self.name, document_id)
        self._write(edge.UpdateOperation.delete_points([id_]), 1)

    async def records(self, document_ids: Sequence[str]) -> Mapping[str, Document]:
        """Records by document id."""
        ids: list[edge.PointId] = [keys.document_point_id(self.name, each) for each in document_ids]
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
        point = schema.mark_point(self._mark_id(document_id), document_id)
        self._write(edge.UpdateOperation.upsert_points([point]), 1)

    async def unmark(self, document_id: str) -> None:
        """Removes a document's mark."""
        self._write(edge.UpdateOperation.delete_points([self._mark_id(document_id)]), 1)

    async def marked(self) -> list[str]:
        """Ids of the marked documents, read in slices."""
        return await self._ids(schema.within(EVERYTHING, schema.MARK))

    async def sync(self) -> None:
        """Writes the log through to the disk, in a thread; whoever comes meanwhile shares the next time."""
        if self._next_sync is None:
            self._next_sync = asyncio.create_task(self._sync_in_turn())
        await asyncio.shield(self._next_sync)

    async def _sync_in_turn(self) -> None:
        async with self._syncing:
            self._next_sync = None
            if self._open_shard is not None:
                await asyncio.to_thread(files.sync_tree, self._shard_directory / "wal")

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

    def _write(self, operation: edge.UpdateOperation, points: int) -> None:
        self._shard.update(operation)
        self._unflushed += points
        if self._unflushed >= _FLUSH_EVERY:
            self._shard.flush()
            self._unflushed = 0

    @property
    def _shard(self) -> edge.EdgeShard:
        if self._open_shard is None:
            raise no_such_index(self.spec.name)
        return self._open_shard

    def _mark_id(self, document_id: str) -> Any:
        return keys.document_point_id(f"{self.name}/{schema.MARK}", document_id)
