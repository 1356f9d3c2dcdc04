"""An open index: the counts of its languages, and the documents that it settles again."""

import asyncio
from typing import cast

import pytest
from causeway_testing.retriever.store import MemoryCollection
from retriever.domain.index import IndexSpec
from retriever.domain.scope import Scope
from retriever.indexes.open_index import Index
from retriever.ports.store import Collection
from servicekit.errors import Unavailable


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


async def test_a_document_that_is_being_written_delays_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """`settle_again` skips a document while a writer changes it. The next call settles it."""

    async def fail(*_: object, **__: object) -> None:
        raise Unavailable("The store fails.")

    collection = MemoryCollection(IndexSpec("t", "docs", "model", 1))
    index = Index(collection, is_published=True)
    with monkeypatch.context() as patch:
        patch.setattr(collection, "remove_chunks", fail)
        for document_id in ("d", "e"):
            await collection.mark(document_id)
            with pytest.raises(Unavailable):
                await index.settle(document_id)
    async with index.changing("d"), asyncio.timeout(5):
        await index.settle_again()
    assert await collection.marked() == ["d"]
    await index.settle_again()
    assert await collection.marked() == []
