"""An index on a Qdrant server: implements `ports.store.Collection` with calls to the server.

Several processes may use the index. As in each store, a document's record decides which chunks are visible. A mark
is a lease (`qdrant.leases`). A record is written only if the stored one has not changed since the document was
marked. Searches read the marks concurrently, at most every quarter of a second unless this process has changed a
mark or a record. If a document has changed since the marks were read, a search may find chunks of another version.
The caller then detects the different generation and searches again.
"""

import contextlib
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec
from qdrant_client import AsyncQdrantClient
from servicekit import keys
from servicekit.errors import CausewayError, Unavailable

from retriever.concurrency.gathering import gather_all
from retriever.domain.document import Document, Version
from retriever.domain.index import Contents, IndexSettings, IndexSpec, Replaced, no_such_index
from retriever.domain.scope import Scope
from retriever.ports.store import ChunkPoint, StoredChunk, Terms
from retriever.stores import payload
from retriever.stores.qdrant import schema, snapshots
from retriever.stores.qdrant.failures import Missing
from retriever.stores.qdrant.leases import Leases
from retriever.stores.qdrant.location import Location
from retriever.stores.qdrant.marks import FROZEN, Marks
from retriever.stores.qdrant.points import Points
from retriever.stores.qdrant.searches import QdrantSearches
from retriever.stores.qdrant.unsettled import Unsettled

_POINT_BATCH = 64
_DELETE_BATCH = 500
_CURRENT_SECONDS = 1.0


class QdrantCollection:
    """An index on a Qdrant server; see `ports.store.Collection`. `stores.qdrant.store.QdrantStore` creates it."""

    def __init__(self, location: Location, leases: Leases, spec: IndexSpec) -> None:
        self.spec = spec
        self.leases = leases
        self._location = location
        self._points = Points(location, spec.name)
        self._name = keys.collection(spec.tenant, spec.name)
        self._revision = 0
        self._marks = Marks(self._points, leases, spec, self.records)
        self._unsettled = Unsettled(self._points, self.records, leases.seconds)
        self._searches = QdrantSearches(location, self._points, self._unsettled, self._check_current)
        self._current_until = 0.0

    @property
    def location(self) -> Location:
        """The location on the server."""
        return self._location

    @property
    def is_removed(self) -> bool:
        """Whether the collection is known to be removed."""
        return self._points.removal_error is not None

    @property
    def revision(self) -> int:
        """A number that changes when this process changes a record or a mark, or a search finds an old point."""
        return self._revision

    def note_stale_read(self, document_id: str | None = None) -> None:
        """Change the revision, and make the next search read the marks again.

        With ``document_id``, a search has found a chunk of another generation. The copy of the preferred node may
        be old, so prefer another node.
        """
        self._revision += 1
        if document_id is not None:
            self._location.collection.connection.prefer_another()
        self._unsettled.invalidate(document_id)

    @property
    def may_have_abandoned_work(self) -> bool:
        """Whether a search found stray chunks or an expired mark, which a terminated process may have left."""
        return self._unsettled.may_have_abandoned_work

    async def is_current(self, *, wait: bool = True) -> bool:
        """Return whether the alias points here. Without ``wait``, return the result of the last check."""
        if wait:
            with contextlib.suppress(Replaced):
                await self._check_current()
        return self._points.removal_error is None

    async def _check_current(self) -> None:
        """Check the alias and the settings, at most once per second. Adopt settings that another process changed.

        Raises:
            Replaced: The alias points elsewhere, or the settings have changed.
        """
        unpublished = self.leases.held(self._location.index_point) is not None
        if unpublished or self._points.removal_error is not None or time.monotonic() < self._current_until:
            return
        now = time.monotonic()
        try:
            is_aliased, spec = await gather_all(self._location.is_aliased(), self._location.spec())
        except Missing:
            is_aliased = False
        self._current_until = now + _CURRENT_SECONDS
        if not is_aliased:
            self._points.removal_error = Replaced(self.spec.name)
            raise self._points.removal_error
        if spec is not None and spec != self.spec:
            self.spec = spec
            raise Replaced(self.spec.name)

    async def publish(self, replaced: "QdrantCollection | None" = None) -> None:
        """Point the alias to this collection, and remove the replaced collection."""
        with self._points.translated_errors():
            if replaced is None:
                await self._location.take_alias(None)
            else:
                await self._location.take_alias(replaced._location, partial(replaced._marks.check, FROZEN))
        self.leases.forget(self._location.index_point)
        if replaced is not None:
            replaced._points.removal_error = Replaced(self.spec.name)
            await replaced._location.remove_replaced()

    async def drop(self) -> None:
        """Remove the collection with its alias."""
        if self._points.removal_error is not None:
            raise self._points.removal_error
        self._points.removal_error = no_such_index(self.spec.name)
        if not self._location.is_undecided:  # otherwise `tidy` removes it if the cluster does not publish it
            await self._location.remove()

    async def release(self) -> None:
        """Release the marks. If no process has published the collection, remove it."""
        if self._points.removal_error is not None:
            return
        if self.leases.held(self._location.index_point) is not None and not await self._location.is_aliased():
            await self.drop()
        else:
            await self.leases.expire_all()

    @property
    def remote(self) -> QdrantSearches:
        """The searches that return both scores in one call."""
        return self._searches

    async def dense(
        self, vector: Sequence[float], limit: int, scope: Scope, ids: Sequence[str] | None = None
    ) -> dict[str, float]:
        """Return the highest cosines."""
        return await self._searches.dense(vector, limit, scope, ids)

    async def sparse(
        self, terms: Terms, limit: int, scope: Scope, ids: Sequence[str] | None = None
    ) -> dict[str, float]:
        """Return the highest BM25 scores."""
        return await self._searches.sparse(terms, limit, scope, ids)

    async def chunks(self, ids: Sequence[str]) -> Mapping[str, StoredChunk]:
        """Return chunks by id."""
        points = await self._points.retrieve_any(ids, schema.STORED_CHUNK_FIELDS)
        return {str(point.id): schema.stored_chunk(str(point.id), point.payload or {}) for point in points}

    async def chunks_of(self, version: Version, first: int, count: int) -> list[StoredChunk]:
        """Return some chunks of a version, in order."""
        points, _ = await self._points.read(
            AsyncQdrantClient.scroll,
            scroll_filter=schema.chunk_range(version, first, count),
            limit=count,
            with_payload=schema.STORED_CHUNK_FIELDS,
        )
        found = [schema.stored_chunk(str(point.id), point.payload or {}) for point in points]
        return sorted(found, key=lambda chunk: chunk.number)

    async def points_of(self, version: Version) -> AsyncIterator[list[ChunkPoint]]:
        """Yield all chunks of a version with their vectors."""
        filter_ = schema.has_facts(payload.version(version))
        async for points in self._points.whole(filter_, _POINT_BATCH):
            yield [schema.chunk_point(point) for point in points]

    async def count_chunks(self, scope: Scope) -> int:
        """Return the number of chunks in scope."""
        unsettled = await self._unsettled.refresh()
        return await self._points.count(schema.scope_filter(scope, payload.CHUNK, unsettled=unsettled))

    async def add_chunks(self, document: Document, points: Sequence[ChunkPoint]) -> None:
        """Store chunks."""
        for start in range(0, len(points), _POINT_BATCH):
            self._marks.check(document.document_id)
            batch = schema.chunk_points(document, points[start : start + _POINT_BATCH])
            await self._points.write(AsyncQdrantClient.upsert, batch, wait=True)

    async def remove_chunks(self, document_id: str, keep: int | None) -> None:
        """Remove chunks by id, and only those that existed while this process held the lease."""
        self._marks.check(document_id)
        ids = list(await self._points.payloads_of_any(schema.chunks_of(document_id, keep), fields=()))
        for start in range(0, len(ids), _DELETE_BATCH):
            self._marks.check(document_id)
            await self._points.delete(ids[start : start + _DELETE_BATCH])

    async def put_record(self, document: Document) -> None:
        """Write a record. For a marked document, write it only if the stored record has not changed."""
        lease = await self._marks.begin_commit(document.document_id)
        point = schema.record_point(self._record_id(document.document_id), document)
        failure = await self._points.upsert_record(point, lease)
        if lease is not None or failure is not None:
            stored = (await self.records([document.document_id])).get(document.document_id)
            if stored != document:
                raise failure or Unavailable(f"Document '{document.document_id}' was written by another process.")
        if lease is not None:
            lease.generation = document.generation
            if not lease.is_held:
                await self._points.remove_if_incomplete(point.id, document)
                lease.check()
        self.note_stale_read()

    async def remove_record(self, document_id: str) -> None:
        """Remove a record. For a marked document, remove it only if the stored record has not changed.

        The server may apply a call after the time-out of the call. By then, another process may have stored the
        document again.
        """
        lease = await self._marks.begin_commit(document_id)
        if lease is None:
            await self._points.delete([self._record_id(document_id)])
        elif lease.generation is not None:
            condition = schema.has_facts(schema.generation_fact(lease.generation))
            failure = await self._points.delete_where(self._record_id(document_id), condition)
            if await self.records([document_id]):
                raise failure or Unavailable(f"Document '{document_id}' was written by another process.")
            lease.generation = None
        self.note_stale_read()

    async def records(self, document_ids: Sequence[str]) -> Mapping[str, Document]:
        """Return records by document id."""
        points = await self._points.retrieve(
            [self._record_id(document_id) for document_id in document_ids], ["record"]
        )
        found = (payload.decode_record(point.payload or {}) for point in points)
        return {record.document_id: record for record in found}

    async def document_ids(self, scope: Scope) -> list[str]:
        """Return the ids of records."""
        return [
            values["document_id"]
            async for values in self._points.payloads(schema.scope_filter(scope, payload.DOCUMENT))
        ]

    async def count_documents(self, scope: Scope) -> int:
        """Return the number of records in scope."""
        return await self._points.count(schema.scope_filter(scope, payload.DOCUMENT))

    async def versions(self) -> Mapping[str, int]:
        """Return the generation of every record."""
        return {record.document_id: record.generation for record in await self.all_records()}

    async def mark(self, document_id: str) -> None:
        """Take the lease on a document."""
        await self._marks.take(document_id)
        self.note_stale_read()

    async def unmark(self, document_id: str) -> None:
        """Give up the lease on a document."""
        await self._marks.give_up(document_id)
        self.note_stale_read()

    async def marked(self) -> list[str]:
        """Return the ids of the marked documents."""
        return [values["document_id"] for values in await self._unsettled.marks()]

    async def abandoned(self) -> list[str]:
        """Return the ids of documents with an abandoned lease or with stray chunks."""
        return await self._unsettled.abandoned()

    async def freeze(self, seconds: float) -> None:
        """Take the lease that other processes check before a commit, and wait for running commits."""
        await self.mark(FROZEN)
        try:
            await self._marks.wait_for_commits(seconds)
        except BaseException:
            await self.thaw()  # otherwise this process would renew the lease, and block commits, until it ends
            raise

    async def thaw(self) -> None:
        """Give up the lease of `freeze`. If the server cannot remove it, it expires."""
        try:
            await self.unmark(FROZEN)
        except CausewayError:
            # An error would hide the one for which the caller thaws the index.
            self.leases.forget(self._marks.point_id(FROZEN))

    async def put_settings(self, settings: IndexSettings) -> None:
        """Store the settings in the point of the specification (`Location.index_point`)."""
        spec = replace(self.spec, settings=settings)
        await self._set_payload({"spec": msgspec.json.encode(spec).decode()})
        self.spec = spec

    async def put_note(self, note: bytes) -> None:
        """Store a note in the point of the specification."""
        await self._set_payload(schema.note_payload(note))

    async def _set_payload(self, values: payload.Payload) -> None:
        index = [self._location.index_point]
        lease = self.leases.held(self._location.index_point)
        if lease is not None:
            lease.content.update(values)
        await self._points.write(AsyncQdrantClient.set_payload, payload=values, points=index, wait=True)

    async def note(self) -> bytes:
        """Return the note."""
        points = await self._points.retrieve([self._location.index_point], [schema.NOTE])
        return schema.note(points[0].payload or {}) if points else b""

    async def sync(self) -> None:
        """Do nothing, because the server acknowledges a write after the write is in its log."""

    async def compact(self) -> None:
        """Check that the collection exists. The server compacts collections automatically."""
        await self._points.retrieve([self._location.index_point], [schema.NOTE])

    async def persist(self, directory: Path) -> Contents:
        """Read the documents of the catalogue, and write the snapshot."""
        return await snapshots.write(self, directory)

    async def all_records(self) -> list[Document]:
        """Return all records."""
        filter_ = schema.has_kind(payload.DOCUMENT)
        return [payload.decode_record(values) async for values in self._points.payloads(filter_, ["record"])]

    def _record_id(self, document_id: str) -> str:
        return str(keys.document_point_id(self._name, document_id))
