"""The port: what the retriever asks of a vector store.

Adapters: `stores.edge` (Qdrant in the process, on disk), `stores.qdrant` (a Qdrant server) and the fake,
`causeway_testing.retriever.store`. All pass the same contract tests, tests/stores/test_contract.py. Fusion, access
rules and the upsert protocol are above the port, the same for all.

A collection holds three kinds of things: chunks (with two vectors), the catalogue's records (one a document), and
marks (documents whose chunks may not agree with their record). Of a document that is marked, searches and counts
see the chunks of the generation that its record names, and no others; what else they see is said by their `Scope`.

Other processes than this one write to a store on a server. There a mark is a lease: it is refused while another
process holds it, renewed while this one does, and abandoned if its process is gone.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self

from retriever.domain import access
from retriever.domain.document import Chunk, Document, Version
from retriever.domain.filter import NO_FILTER, Field, Filter, holds
from retriever.domain.index import Contents, IndexSettings, IndexSpec
from retriever.domain.ranking import Hit

if TYPE_CHECKING:  # it needs what is defined here
    from retriever.ports.remote_searches import RemoteSearches

_BLANK_LINE = "\n\n"


@dataclass(frozen=True, slots=True)
class Scope:
    """What of a collection may be seen.

    Args:
        filter: Conditions on the documents.
        readers: Tokens that the asker holds, of which a document must have one (`domain.access`); None: all.
    """

    filter: Filter = NO_FILTER
    readers: frozenset[str] | None = None

    @property
    def corpus(self) -> "Scope | None":
        """Where the frequencies of words are counted for a search in this scope; None: in the whole collection.

        It is all that the asker may see, also in a narrower search: a BM25 score says nothing of what hidden
        documents contain, and a passage has the same one in each search of the asker.
        """
        return None if self.readers is None else Scope(readers=self.readers)

    def admits(self, document: Document, fields: Sequence[Field]) -> bool:
        """Return whether a document with these fields, or a chunk of it, may be seen.

        This says what a scope means, for stores whose engine does not evaluate conditions.
        """
        readable = self.readers is None or not self.readers.isdisjoint(access.readers(document.access))
        return readable and holds(self.filter, fields)


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
    """A chunk as it is read back, without its vectors.

    ``generation`` is its document's; None where a store never shows more than one. ``analysis`` is the document's,
    too; None where the chunk does not say it.
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
    analysis: str | None = None

    @property
    def continuation(self) -> str:
        """What the chunk adds to the text of the chunk before it, with the separator between the two."""
        if self.overlap:
            return self.text[self.overlap :]
        separator = self.separator
        if separator is None:
            separator = _BLANK_LINE if self.number else ""
        return separator + self.text


class Collection(Protocol):
    """One index. Every method raises NotFound once the collection is dropped, Replaced once it is replaced."""

    @property
    def spec(self) -> IndexSpec:
        """What it is."""
        ...

    @property
    def revision(self) -> int:
        """Another number than before: what was found since belongs to other versions of documents, perhaps."""
        ...

    def outdated(self, document_id: str | None = None) -> None:
        """Told when something was found that is not there any more; `revision` is another one then.

        Args:
            document_id: Of what was found, where it is of another version than the document's record names.
        """
        ...

    @property
    def remote(self) -> "RemoteSearches | None":
        """Searches in few calls; None where a call costs nothing, because the store is in this process."""
        ...

    async def is_current(self, *, wait: bool = True) -> bool:
        """Whether it is still the one of its name, as far as was known a second ago.

        Args:
            wait: Ask the store, if that is longer ago; else a search finds out, and raises Replaced.
        """
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
        """The chunks with the highest BM25 score, those that have a word in common only; in any order.

        The frequencies of words are those of ``scope.corpus``.
        """
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
        """Writes the catalogue's record of a document, whole.

        Raises:
            Unavailable: The document was marked by this process, and another one has taken it over.
        """
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

    async def versions(self) -> Mapping[str, int]:
        """The generation of every record, by document id."""
        ...

    async def mark(self, document_id: str) -> None:
        """Notes that the document's chunks may not agree with its record.

        Raises:
            Unavailable: Another process works on it.
        """
        ...

    async def unmark(self, document_id: str) -> None:
        """Takes the mark away, if it is not another process's."""
        ...

    async def marked(self) -> list[str]:
        """Ids of the documents that are marked."""
        ...

    async def abandoned(self) -> list[str]:
        """Ids of those that a process which is gone has left marked."""
        ...

    async def freeze(self, seconds: float) -> None:
        """From here on no other process commits anything, until `thaw` or the end of this process. What others have
        committed is there when this returns.

        Raises:
            TimeoutError: Others have not come to rest after so many seconds.
        """
        ...

    async def thaw(self) -> None:
        """Ends what `freeze` began, also where the collection is gone."""
        ...

    async def put_settings(self, settings: IndexSettings) -> None:
        """Gives it other settings, which `spec` tells from then on; in other processes within a second or two."""
        ...

    async def put_note(self, note: bytes) -> None:
        """Keeps a few bytes with the collection, in the place of those that are there."""
        ...

    async def note(self) -> bytes:
        """What is kept; empty where nothing is."""
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
        """Write a snapshot (`storage.snapshot_writer`) of what the catalogue knows; replace one that is there.

        Raises:
            Unavailable: It could not be done; a snapshot that was there still is.
            RateLimited: Too many others wait for it.
        """
        ...


REBUILD = "\0rebuild"
"""Marked instead of a document: by who rebuilds the collection."""


class Store(Protocol):
    """All indexes of all tenants."""

    @property
    def is_shared(self) -> bool:
        """Whether other processes may work on it, too."""
        ...

    async def collections(self) -> Sequence[Collection]:
        """The collections that have been published and not dropped."""
        ...

    async def notes(self) -> Mapping[tuple[str, str], bytes]:
        """The notes of these, by tenant and name; no collection is opened for it."""
        ...

    async def find(self, tenant: str, name: str) -> Collection | None:
        """The one of these that has this name.

        Raises:
            Unavailable: It cannot be opened.
        """
        ...

    async def create(self, spec: IndexSpec, *, beside: bool = False) -> Collection:
        """A new, empty collection, not published.

        Args:
            spec: What it is.
            beside: It is to replace one; else another process that creates one of this name gets the same.

        Raises:
            Unavailable: It cannot be made.
        """
        ...

    async def tidy(self) -> Sequence[Collection]:
        """Clear away collections that a process which is gone has begun and not published.

        Return the published collections that a process which is gone may have left documents marked in. Where each
        collection has to be asked for itself, these are all the first time, and some at a time then.
        """
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
