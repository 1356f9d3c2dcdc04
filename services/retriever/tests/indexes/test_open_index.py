"""An open index: the counts of its languages."""

from typing import cast

from retriever.domain.scope import Scope
from retriever.indexes.open_index import Index
from retriever.ports.store import Collection


class _Counted:
    """A collection with documents in every language or in none.

    Attributes:
        index: The index whose collection is replaced during the count.
        other: The new collection.
    """

    remote = None
    revision = 0

    def __init__(self, documents: int) -> None:
        self._documents = documents
        self.index: Index | None = None
        self.other: Collection | None = None

    async def count_documents(self, scope: Scope) -> int:
        if self.index is not None and self.other is not None:
            self.index.collection = self.other
        return self._documents


async def test_a_count_belongs_to_the_collection_that_was_counted() -> None:
    """If the collection is replaced during a count, the new one is counted, even if its revision is the same."""
    old, new = _Counted(1), _Counted(0)
    index = Index(cast("Collection", old), is_published=True)
    old.index, old.other = index, cast("Collection", new)
    assert await index.languages()
    index.note_language("a new one")
    assert await index.languages() == {}
