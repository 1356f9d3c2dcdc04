"""The part of an index that a search, a count or a listing includes."""

from collections.abc import Sequence
from dataclasses import dataclass

from retriever.domain import access
from retriever.domain.document import Document
from retriever.domain.filter import NO_FILTER, Field, Filter, holds


@dataclass(frozen=True, slots=True)
class Scope:
    """The visible part of a collection.

    Attributes:
        filter: Conditions on the documents and their chunks.
        readers: The caller's tokens. The scope contains documents with one of these tokens (`domain.access`).
            None: no restriction.
    """

    filter: Filter = NO_FILTER
    readers: frozenset[str] | None = None

    @property
    def corpus(self) -> "Scope | None":
        """The scope in which document frequencies are counted; None: the whole collection.

        The corpus contains all documents that the caller may see, even if the filter is narrower. So a BM25 score
        reveals nothing about hidden documents, and does not depend on the filter.
        """
        return None if self.readers is None else Scope(readers=self.readers)

    def admits(self, document: Document, fields: Sequence[Field]) -> bool:
        """Return whether a document with these fields, or a chunk of it, is visible.

        This method is the reference for all stores. Stores whose engine cannot evaluate conditions call it.
        """
        readable = self.readers is None or not self.readers.isdisjoint(access.document_tokens(document.access))
        return readable and holds(self.filter, fields)


EVERYTHING = Scope()
