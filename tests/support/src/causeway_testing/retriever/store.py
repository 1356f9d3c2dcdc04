"""The fake store. It has all data in dictionaries, and a search scores every chunk in scope."""

import math
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from retriever.domain.document import Document, Version
from retriever.domain.fields import fields_of
from retriever.domain.index import Contents, IndexSettings, IndexSpec, Replaced, no_such_index
from retriever.domain.scope import Scope
from retriever.ports.store import ChunkPoint, StoredChunk, Terms
from retriever.storage import snapshot_reader, snapshot_writer


class MemoryStore:
    """See `retriever.ports.store.Store`. Published collections still exist after `aclose`, as on a disk."""

    is_shared = False

    def __init__(self) -> None:
        self._collections: list[MemoryCollection] = []

    async def collections(self) -> Sequence["MemoryCollection"]:
        """Return the published collections."""
        return [collection for collection in self._collections if collection.published]

    async def notes(self) -> Mapping[tuple[str, str], bytes]:
        """Return the notes of the published collections."""
        return {(each.spec.tenant, each.spec.name): await each.note() for each in await self.collections()}

    async def find(self, tenant: str, name: str) -> "MemoryCollection | None":
        """Return the published collection of this name."""
        found = [each for each in await self.collections() if (each.spec.tenant, each.spec.name) == (tenant, name)]
        return found[0] if found else None

    async def create(self, spec: IndexSpec, *, is_replacement: bool = False) -> "MemoryCollection":
        """Create a collection."""
        del is_replacement  # no other process creates collections
        collection = MemoryCollection(spec)
        self._collections.append(collection)
        return collection

    async def restore(self, spec: IndexSpec, directory: Path) -> "MemoryCollection":
        """Create a collection with the content of a snapshot."""
        collection = MemoryCollection(spec)
        manifest = snapshot_reader.read_manifest(directory)
        for document, point in snapshot_reader.read(directory, manifest, spec):
            if point is None:
                await collection.put_record(document)
            else:
                await collection.add_chunks(document, [point])
        self._collections.append(collection)
        return collection

    async def tidy(self) -> Sequence["MemoryCollection"]:
        """Return no collection, because no other process exists."""
        return ()

    async def aclose(self) -> None:
        """Forget unpublished collections and the owners of marks."""
        self._collections = [collection for collection in self._collections if collection.published]
        for collection in self._collections:
            collection.forget()


class MemoryCollection:
    """An index. See `retriever.ports.store.Collection`."""

    def __init__(self, spec: IndexSpec) -> None:
        self.spec = spec
        self.published = False
        self.revision = 0
        self._dropped = self._replaced = False
        self._note = b""
        self._own_marks: set[str] = set()
        self._points: dict[str, tuple[ChunkPoint, Document]] = {}
        self._records: dict[str, Document] = {}
        self._marks: set[str] = set()

    def note_stale_read(self, document_id: str | None = None) -> None:
        """Change the revision."""
        del document_id  # nothing is applied late
        self.revision += 1

    def forget(self) -> None:
        """Make all marks abandoned, as after a restart of the process."""
        self._own_marks.clear()

    @property
    def remote(self) -> None:
        """Return None, because all data is in this process."""

    async def is_current(self, *, wait: bool = True) -> bool:
        """Return whether the collection was neither dropped nor replaced."""
        del wait  # it is known at once
        return not self._dropped and not self._replaced

    async def publish(self, replaced: "MemoryCollection | None" = None) -> None:
        """Publish the collection."""
        self._check()
        self.published = True
        if replaced is not None:
            replaced.published, replaced._replaced = False, True

    async def drop(self) -> None:
        """Remove the collection."""
        self._check()
        self.published, self._dropped = False, True

    async def dense(
        self, vector: Sequence[float], limit: int, scope: Scope, ids: Sequence[str] | None = None
    ) -> dict[str, float]:
        """Return the highest cosines."""
        length = math.hypot(*vector)
        cosines = {
            point.id: _dot(vector, point.chunk.vector) / (length * math.hypot(*point.chunk.vector))
            for point in self._in_scope(scope, ids)
        }
        return _highest(cosines, limit)

    async def sparse(
        self, terms: Terms, limit: int, scope: Scope, ids: Sequence[str] | None = None
    ) -> dict[str, float]:
        """Return the highest BM25 scores."""
        self._check()
        everything = (point for point, _ in self._points.values())
        corpus = everything if scope.corpus is None else self._in_scope(scope.corpus, None)
        texts = [set(point.terms.indices) for point in corpus if point.terms.indices]
        idf: dict[int, float] = {}
        for term in terms.indices:
            document_frequency = sum(term in text for text in texts)
            idf[term] = math.log(1 + (len(texts) - document_frequency + 0.5) / (document_frequency + 0.5))
        scores = {}
        for point in self._in_scope(scope, ids):
            weights = dict(zip(point.terms.indices, point.terms.weights, strict=True))
            common = [term for term in terms.indices if term in weights]
            if common:
                scores[point.id] = sum(idf[term] * weights[term] for term in common)
        return _highest(scores, limit)

    async def chunks(self, ids: Sequence[str]) -> Mapping[str, StoredChunk]:
        """Return chunks by id."""
        self._check()
        found = [self._points[id_] for id_ in ids if id_ in self._points]
        return {point.id: _stored(point, document) for point, document in found}

    async def chunks_of(self, version: Version, first: int, count: int) -> list[StoredChunk]:
        """Return some chunks of a version in order."""
        self._check()
        found = [
            _stored(point, document)
            for point, document in self._points.values()
            if document.version == version and first <= point.chunk.number < first + count
        ]
        return sorted(found, key=lambda chunk: chunk.number)

    async def points_of(self, version: Version) -> AsyncIterator[list[ChunkPoint]]:
        """Yield all chunks of a version."""
        self._check()
        yield [point for point, document in self._points.values() if document.version == version]

    async def count_chunks(self, scope: Scope) -> int:
        """Return the number of chunks in scope."""
        return sum(1 for _ in self._in_scope(scope, None))

    async def add_chunks(self, document: Document, points: Sequence[ChunkPoint]) -> None:
        """Store chunks."""
        self._check()
        self._points.update({point.id: (point, document) for point in points})

    async def remove_chunks(self, document_id: str, keep: int | None) -> None:
        """Remove chunks."""
        self._check()
        self._points = {
            id_: (point, document)
            for id_, (point, document) in self._points.items()
            if document.document_id != document_id or document.generation == keep
        }

    async def put_record(self, document: Document) -> None:
        """Write a record."""
        self._check()
        self._records[document.document_id] = document
        self.revision += 1

    async def remove_record(self, document_id: str) -> None:
        """Remove a record."""
        self._check()
        self._records.pop(document_id, None)
        self.revision += 1

    async def records(self, document_ids: Sequence[str]) -> Mapping[str, Document]:
        """Return records by document id."""
        self._check()
        return {id_: self._records[id_] for id_ in document_ids if id_ in self._records}

    async def document_ids(self, scope: Scope) -> list[str]:
        """Return the ids of the records in scope."""
        self._check()
        return [
            document.document_id
            for document in self._records.values()
            if scope.admits(document, fields_of(document))
        ]

    async def count_documents(self, scope: Scope) -> int:
        """Return the number of records in scope."""
        return len(await self.document_ids(scope))

    async def versions(self) -> Mapping[str, int]:
        """Return the generation of every record."""
        self._check()
        return {document.document_id: document.generation for document in self._records.values()}

    async def mark(self, document_id: str) -> None:
        """Mark a document."""
        self._check()
        self._marks.add(document_id)
        self._own_marks.add(document_id)
        self.revision += 1

    async def unmark(self, document_id: str) -> None:
        """Remove a mark."""
        self._check()
        self._marks.discard(document_id)
        self._own_marks.discard(document_id)

    async def marked(self) -> list[str]:
        """Return the ids of the marked documents."""
        self._check()
        return list(self._marks)

    async def abandoned(self) -> list[str]:
        """Return the ids of the documents that were marked before the store was opened."""
        self._check()
        return list(self._marks - self._own_marks)

    async def freeze(self, seconds: float) -> None:
        """Do nothing, because no other process exists."""

    async def thaw(self) -> None:
        """Do nothing, because no other process exists."""

    async def put_settings(self, settings: IndexSettings) -> None:
        """Store the settings in the spec."""
        self._check()
        self.spec = replace(self.spec, settings=settings)

    async def put_note(self, note: bytes) -> None:
        """Store a note."""
        self._check()
        self._note = note

    async def note(self) -> bytes:
        """Return the note."""
        self._check()
        return self._note

    async def sync(self) -> None:
        """Do nothing, because memory needs no sync."""

    async def compact(self) -> None:
        """Do nothing, because there is nothing to compact."""
        self._check()

    async def persist(self, directory: Path) -> Contents:
        """Write a snapshot."""
        self._check()
        with snapshot_writer.Writer(directory, self.spec) as writer:
            for document in self._records.values():
                writer.record(document)
            for document in self._records.values():
                async for points in self.points_of(document.version):
                    for point in points:
                        writer.chunk(document.document_id, point.chunk, point.terms)
            return writer.commit()

    def _in_scope(self, scope: Scope, ids: Sequence[str] | None) -> Iterable[ChunkPoint]:
        self._check()
        for id_, (point, document) in self._points.items():
            fields = [*fields_of(document), ("page", point.chunk.page)]
            if (ids is None or id_ in ids) and self._is_searchable(document) and scope.admits(document, fields):
                yield point

    def _is_searchable(self, document: Document) -> bool:
        if document.document_id not in self._marks:
            return True
        record = self._records.get(document.document_id)
        return record is not None and record.generation == document.generation

    def _check(self) -> None:
        if self._replaced:
            raise Replaced(self.spec.name)
        if self._dropped:
            raise no_such_index(self.spec.name)


def _stored(point: ChunkPoint, document: Document) -> StoredChunk:
    chunk = point.chunk
    return StoredChunk(
        point.id,
        document.document_id,
        None,
        chunk.number,
        chunk.page,
        tuple(chunk.headings),
        chunk.text,
        chunk.overlap,
        chunk.separator,
    )


def _highest(scores: Mapping[str, float], limit: int) -> dict[str, float]:
    return dict(sorted(scores.items(), key=lambda each: -each[1])[:limit])


def _dot(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))
