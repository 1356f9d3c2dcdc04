"""The port for vector stores.

Adapters: `stores.edge` (Qdrant in the process, on disk), `stores.qdrant` (a Qdrant server) and the fake,
`causeway_testing.retriever.store`. All pass the same contract tests,
services/retriever/tests/stores/test_contract.py. Fusion, access rules and the upsert protocol are above the port
and the same for all.

A collection has three kinds of points: chunks (with a dense and a sparse vector, or only a dense one if the text
has no terms), records of the catalogue (one for each document), and marks (of documents whose chunks may not agree
with their record). For a marked document, searches and counts see only the chunks of the generation that its record
names. A `Scope` restricts them further.

Several processes write to a store on a server. There a mark is a lease. One process holds it and renews it.
Meanwhile, other processes cannot mark the document. When the holder has terminated, the mark is abandoned.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self

from retriever.domain.document import Chunk, Document, Version
from retriever.domain.index import Contents, IndexSettings, IndexSpec
from retriever.domain.scope import Scope

if TYPE_CHECKING:  # that module imports this one
    from retriever.ports.remote_searches import RemoteSearches

_BLANK_LINE = "\n\n"


@dataclass(frozen=True, slots=True)
class Terms:
    """A sparse vector: indices of terms, ascending, and their weights."""

    indices: Sequence[int]
    weights: Sequence[float]


@dataclass(frozen=True, slots=True)
class ChunkPoint:
    """A chunk with its id (a UUID as text) and terms, ready to be stored."""

    id: str
    chunk: Chunk
    terms: Terms


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """A chunk as read from the store, without its vectors.

    ``generation`` is the generation of its document, or None if the store never returns chunks of several
    generations of a document. ``analysis_language`` is `Document.analysis_language`, or None if the store does not
    keep it with the chunk.
    """

    id: str
    document_id: str
    generation: int | None
    number: int
    page: int
    headings: tuple[str, ...]
    text: str
    overlap: int
    separator: str | None
    analysis_language: str | None = None

    @property
    def continuation(self) -> str:
        """The text that the chunk adds to the chunk before it, including the separator."""
        if self.overlap:
            return self.text[self.overlap :]
        separator = self.separator
        if separator is None:
            separator = _BLANK_LINE if self.number else ""
        return separator + self.text


class Collection(Protocol):
    """One index. Each method raises NotFound after the collection is dropped, and Replaced after it is replaced."""

    @property
    def spec(self) -> IndexSpec:
        """The specification of the index."""
        ...

    @property
    def revision(self) -> int:
        """A number that changes when searches may see other versions of documents."""
        ...

    def note_stale_read(self, document_id: str | None = None) -> None:
        """Note that a search found a point that was removed or replaced. This changes `revision`.

        Args:
            document_id: The document of the point, if the document's record names another generation. None: the
                point does not exist any more.
        """
        ...

    @property
    def remote(self) -> "RemoteSearches | None":
        """The combined searches of a remote store; None for a store in this process, where calls are cheap."""
        ...

    async def is_current(self, *, wait: bool = True) -> bool:
        """Return whether the name of the index still refers to this collection.

        Args:
            wait: Whether to query the store if the known result is older than a second. If false, return the known
                result. Then a later search may raise Replaced.
        """
        ...

    async def publish(self, replaced: Self | None = None) -> None:
        """Make the collection durable. An unpublished collection is lost when the store is opened again.

        Args:
            replaced: A collection of the same name to replace atomically.
        """
        ...

    async def drop(self) -> None:
        """Delete the collection with all its points."""
        ...

    async def dense(
        self, vector: Sequence[float], limit: int, scope: Scope, ids: Sequence[str] | None = None
    ) -> dict[str, float]:
        """Return the highest cosines by chunk id. ``ids`` limits the search to these chunks."""
        ...

    async def sparse(
        self, terms: Terms, limit: int, scope: Scope, ids: Sequence[str] | None = None
    ) -> dict[str, float]:
        """Return the highest BM25 scores by chunk id. Chunks without a term of the query have no score.

        Document frequencies (IDF) are counted in ``scope.corpus``.
        """
        ...

    async def chunks(self, ids: Sequence[str]) -> Mapping[str, StoredChunk]:
        """Return the chunks by id, without those that do not exist."""
        ...

    async def chunks_of(self, version: Version, first: int, count: int) -> list[StoredChunk]:
        """Return a version's chunks with the numbers ``first`` to ``first + count - 1``, in order."""
        ...

    def points_of(self, version: Version) -> AsyncIterator[list[ChunkPoint]]:
        """Yield all chunks of a version with their vectors, a few at a time, in any order."""
        ...

    async def count_chunks(self, scope: Scope) -> int:
        """Return the number of chunks in scope."""
        ...

    async def add_chunks(self, document: Document, points: Sequence[ChunkPoint]) -> None:
        """Store chunks of a document's generation. This is idempotent.

        Raises:
            Unavailable: The store has no space.
        """
        ...

    async def remove_chunks(self, document_id: str, keep: int | None) -> None:
        """Remove the document's chunks of all generations except ``keep``."""
        ...

    async def put_record(self, document: Document) -> None:
        """Write the catalogue's record of a document atomically.

        Raises:
            Unavailable: This process had marked the document, and another process has taken over the mark.
        """
        ...

    async def remove_record(self, document_id: str) -> None:
        """Remove the record of a document if it exists."""
        ...

    async def records(self, document_ids: Sequence[str]) -> Mapping[str, Document]:
        """Return the records by document id, without those that do not exist."""
        ...

    async def document_ids(self, scope: Scope) -> list[str]:
        """Return the ids of all records in scope, in any order."""
        ...

    async def count_documents(self, scope: Scope) -> int:
        """Return the number of records in scope."""
        ...

    async def versions(self) -> Mapping[str, int]:
        """Return the generation of every record, by document id."""
        ...

    async def mark(self, document_id: str) -> None:
        """Note that the document's chunks may not agree with its record.

        Raises:
            Unavailable: Another process holds the mark of the document.
        """
        ...

    async def unmark(self, document_id: str) -> None:
        """Remove the mark if no other process holds it."""
        ...

    async def marked(self) -> list[str]:
        """Return the ids of the marked documents."""
        ...

    async def abandoned(self) -> list[str]:
        """Return the ids of documents with abandoned marks.

        In a shared store, also return the ids of documents with chunks of another version that a search has found.
        """
        ...

    async def freeze(self, seconds: float) -> None:
        """Block commits of other processes until `thaw` or the end of this process.

        Their earlier commits are visible when this returns.

        Raises:
            TimeoutError: Commits of other processes did not end within this time.
        """
        ...

    async def thaw(self) -> None:
        """Allow commits again after `freeze`, even if the collection was removed."""
        ...

    async def put_settings(self, settings: IndexSettings) -> None:
        """Change the settings in `spec`. Other processes see the change within two seconds."""
        ...

    async def put_note(self, note: bytes) -> None:
        """Store a short note with the collection, replacing the previous one."""
        ...

    async def note(self) -> bytes:
        """Return the note, or empty bytes if there is no note."""
        ...

    async def sync(self) -> None:
        """Make all previous writes durable."""
        ...

    async def compact(self) -> None:
        """Reclaim the space of removed points, and build the search structures of a large collection.

        The collection remains available.

        Raises:
            Unavailable: The compaction failed; nothing changed.
            RateLimited: Too many compactions and snapshots run or wait.
        """
        ...

    async def persist(self, directory: Path) -> Contents:
        """Write a snapshot (`storage.snapshot_writer`) of the documents in the catalogue. Replace an existing one.

        Raises:
            Unavailable: The snapshot could not be written; an existing one is unchanged.
            RateLimited: Too many compactions and snapshots run or wait.
        """
        ...


REBUILD = "\0rebuild"
"""The id that a rebuild marks, in place of a document's id."""


class Store(Protocol):
    """All indexes of all tenants."""

    @property
    def is_shared(self) -> bool:
        """Whether other processes may use the same store."""
        ...

    async def collections(self) -> Sequence[Collection]:
        """Return the collections that have been published and not dropped."""
        ...

    async def notes(self) -> Mapping[tuple[str, str], bytes]:
        """Return the notes of the published collections by tenant and name, without opening them."""
        ...

    async def find(self, tenant: str, name: str) -> Collection | None:
        """Return the published collection with this name, or None.

        Raises:
            Unavailable: The collection cannot be opened.
        """
        ...

    async def create(self, spec: IndexSpec, *, is_replacement: bool = False) -> Collection:
        """Create an empty, unpublished collection.

        Args:
            spec: The specification of the index.
            is_replacement: Whether the collection will replace an existing one. If not, processes that create a
                collection of this name at the same time get the same collection.

        Raises:
            Unavailable: The collection cannot be created.
        """
        ...

    async def tidy(self) -> Sequence[Collection]:
        """Remove unpublished collections of terminated processes.

        Return published collections in which a terminated process may have left marks. If the store must check each
        collection separately, the first call returns all of them, and later calls return some at a time.
        """
        ...

    async def restore(self, spec: IndexSpec, directory: Path) -> Collection:
        """Create an unpublished collection from a snapshot.

        Raises:
            InvalidRequest: The snapshot is damaged, or its vectors do not match ``spec``.
            Unavailable: The collection could not be created.
            RateLimited: Too many compactions and snapshots run or wait.
        """
        ...

    async def aclose(self) -> None:
        """Close the store. Published collections exist when it is opened again."""
        ...
