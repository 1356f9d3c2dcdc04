"""The port: what the retriever asks of a vector store.

Adapters: `store.edge` (Qdrant in the process, on disk) and `store.memory` (the fake). Both pass the same contract
tests, tests/test_store.py. Fusion, access rules and the upsert protocol are above the port, the same for all.

A collection holds three kinds of things: chunks (with two vectors), the catalogue's records (one a document), and
marks (documents whose chunks may not agree with their record). Which chunks a search sees is said by its `Scope`.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

from retriever.domain import NO_FILTER, Chunk, Contents, Document, Filter, IndexSpec, Version
from retriever.fusion import Hit


@dataclass(frozen=True, slots=True)
class Scope:
    """What of a collection may be seen.

    Args:
        filter: Conditions on the documents.
        readers: Tokens that the asker holds, of which a document must have one (`retriever.access`); None: all.
        hidden: Versions whose chunks are being written or removed.
    """

    filter: Filter = NO_FILTER
    readers: frozenset[str] | None = None
    hidden: frozenset[Version] = frozenset()


EVERYTHING = Scope()


@dataclass(frozen=True, slots=True)
class Terms:
    """A sparse vector: indices of words, ascending, and their weights."""

    indices: Sequence[int]
    weights: Sequence[float]


@dataclass(frozen=True, slots=True)
class ChunkPoint:
    """A chunk, ready to be stored under its id (a UUID as text)."""

    id: str
    chunk: Chunk
    terms: Terms


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """A chunk as it is read back, without its vectors."""

    id: str
    document_id: str
    number: int
    page: int
    headings: tuple[str, ...]
    text: str
    overlap: int
    separator: str | None


class TermEncoder(Protocol):
    """Text to sparse vectors whose dot product, with the store's IDF, is BM25."""

    def query(self, text: str) -> Terms:
        """The words of a query, each with weight 1; empty where it has none that count."""
        ...

    async def documents(self, texts: Sequence[str]) -> list[Terms]:
        """The words of texts, weighted by their frequency."""
        ...


class Collection(Protocol):
    """One index. Every method raises NotFound once the collection is dropped, Unavailable once it is replaced."""

    @property
    def spec(self) -> IndexSpec:
        """What it is."""
        ...

    async def publish(self, instead_of: Self | None = None) -> None:
        """Makes the collection itself lasting: until then it is gone when the store is opened again.

        Args:
            instead_of: Another collection of the same name, which it replaces in one step.
        """
        ...

    async def drop(self) -> None:
        """Removes the collection with everything in it, for good."""
        ...

    async def dense(
        self, vector: Sequence[float], limit: int, scope: Scope, ids: Sequence[str] | None = None
    ) -> list[Hit]:
        """The chunks with the highest cosine similarity; in any order. ``ids``: among these only."""
        ...

    async def sparse(self, terms: Terms, limit: int, scope: Scope, ids: Sequence[str] | None = None) -> list[Hit]:
        """The chunks with the highest BM25 score, those that have a word in common only; in any order."""
        ...

    async def chunks(self, ids: Sequence[str]) -> Mapping[str, StoredChunk]:
        """Chunks by id; those that are not there are left out."""
        ...

    async def chunks_of(self, version: Version, first: int, count: int) -> list[StoredChunk]:
        """A version's chunks with the numbers ``first`` to ``first + count - 1``, in order."""
        ...

    def points_of(self, version: Version) -> AsyncIterator[list[ChunkPoint]]:
        """All chunks of a version with their vectors, a few at a time, in any order."""
        ...

    async def count_chunks(self, scope: Scope) -> int:
        """Number of chunks in scope."""
        ...

    async def add_chunks(self, document: Document, points: Sequence[ChunkPoint]) -> None:
        """Stores chunks of a document's generation; storing one again changes nothing.

        Raises:
            Unavailable: There is no room.
        """
        ...

    async def remove_chunks(self, document_id: str, keep: int | None) -> None:
        """Removes the document's chunks of every generation but ``keep``."""
        ...

    async def put_record(self, document: Document) -> None:
        """Writes the catalogue's record of a document, whole."""
        ...

    async def remove_record(self, document_id: str) -> None:
        """Removes the record of a document, if it is there."""
        ...

    async def records(self, document_ids: Sequence[str]) -> Mapping[str, Document]:
        """Records by document id; those that are not there are left out."""
        ...

    async def document_ids(self, scope: Scope) -> list[str]:
        """Ids of all records in scope, in any order."""
        ...

    async def count_documents(self, scope: Scope) -> int:
        """Number of records in scope."""
        ...

    async def mark(self, document_id: str) -> None:
        """Notes that the document's chunks may not agree with its record."""
        ...

    async def unmark(self, document_id: str) -> None:
        """Takes the note away."""
        ...

    async def marked(self) -> list[str]:
        """Ids of the documents that are marked."""
        ...

    async def sync(self) -> None:
        """Returns once everything written so far would survive a loss of power."""
        ...

    async def compact(self) -> None:
        """Gives back what removed points hold, and prepares searching a large collection; it goes on serving.

        Raises:
            Unavailable: It could not be done; nothing changed.
            RateLimited: Too many others wait for it.
        """
        ...

    async def persist(self, directory: Path) -> Contents:
        """Writes a snapshot (`store.snapshot`) of what the catalogue knows, in the place of one that is there.

        Raises:
            Unavailable: It could not be done; a snapshot that was there still is.
            RateLimited: Too many others wait for it.
        """
        ...


class Store(Protocol):
    """All indexes of all tenants."""

    async def collections(self) -> Sequence[Collection]:
        """The collections that have been published and not dropped."""
        ...

    async def create(self, spec: IndexSpec) -> Collection:
        """A new, empty collection, not published."""
        ...

    async def restore(self, spec: IndexSpec, directory: Path) -> Collection:
        """A new collection that holds what a snapshot does, not published.

        Raises:
            InvalidRequest: The snapshot is damaged, or has other vectors than ``spec`` says.
            Unavailable: It could not be done.
            RateLimited: Too many others wait for it.
        """
        ...

    async def aclose(self) -> None:
        """Ends the store; everything published is there when it is opened again."""
        ...
