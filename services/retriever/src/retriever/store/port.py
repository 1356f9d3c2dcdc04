"""The port: what the retriever asks of a vector store.

Adapters: `store.edge` (Qdrant in the process, on disk) and `store.memory` (the fake). Both pass the same contract
tests, tests/test_store.py. Fusion, access rules and the upsert protocol are above the port, the same for all.

A collection holds three kinds of things: chunks (with two vectors), the catalogue's records (one a document), and
marks (documents whose chunks may not agree with their record). Which chunks a search sees is said by its `Scope`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from retriever.domain import NO_FILTER, Chunk, Document, Filter, IndexSpec, Version
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


class TermEncoder(Protocol):
    """Text to sparse vectors whose dot product, with the store's IDF, is BM25."""

    def query(self, text: str) -> Terms:
        """The words of a query, each with weight 1; empty where it has none that count."""
        ...

    async def documents(self, texts: Sequence[str]) -> list[Terms]:
        """The words of texts, weighted by their frequency."""
        ...


class Collection(Protocol):
    """One index. Every method raises NotFound once the collection is dropped."""

    @property
    def spec(self) -> IndexSpec:
        """What it is."""
        ...

    async def publish(self) -> None:
        """Makes the collection itself lasting: until then it is gone when the store is opened again."""
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


class Store(Protocol):
    """All indexes of all tenants."""

    async def collections(self) -> Sequence[Collection]:
        """The collections that have been published and not dropped."""
        ...

    async def create(self, spec: IndexSpec) -> Collection:
        """A new, empty collection, not published."""
        ...

    async def aclose(self) -> None:
        """Ends the store; everything published is there when it is opened again."""
        ...
