"""An open index and its locks.

A chunk is part of an index if the catalogue's record of its document names the chunk's generation.
While chunks are written or removed, the document has a mark in the store. For a marked document, searches ignore
the chunks of generations that its record does not name. `Index.settle` removes these chunks and then the mark. It
runs at the end of every upsert and deletion, successful or not, and for each mark that a crash has left behind. In
a shared store, `Index.settle_again` repeats it if it has failed.
"""

import asyncio
import contextlib
import weakref
from collections.abc import AsyncIterator, Mapping

from servicekit.errors import CausewayError, PermissionDenied, Unavailable
from servicekit.principal import Principal
from servicekit.tasks import cancel_and_wait

from retriever.concurrency.gathering import gather_all
from retriever.concurrency.readers_writer_lock import ReadersWriterLock
from retriever.domain import access
from retriever.domain.fields import TEXT_LANGUAGE
from retriever.domain.filter import NO_FILTER, Filter, MatchAny
from retriever.domain.index import IndexSpec
from retriever.domain.language import LANGUAGES
from retriever.domain.scope import EVERYTHING, Scope
from retriever.ports.store import Collection

_LANGUAGES_SECONDS = 5.0
"""Minimum seconds between two counts of the languages of an index."""
_OLD_LANGUAGES_SECONDS = 60.0
"""Further seconds in which searches of a remote store still use the old counts, while a recount runs."""


class Index:
    """An open index.

    Attributes:
        collection: The collection that stores it.
        is_published: Whether readers can see the index. `Indexes.create` and the first commit publish it.
        writers: Number of running upserts.
        lock: Commits hold it shared. A rebuild holds it exclusively while it replaces the collection.
    """

    def __init__(self, collection: Collection, *, is_published: bool) -> None:
        self.collection = collection
        self.is_published = is_published
        self.writers = 0
        self.lock = ReadersWriterLock()
        self._languages: Mapping[str, int] = {}
        self._counting = asyncio.Lock()
        self._counted: tuple[Collection, int] | None = None
        self._languages_until = -_OLD_LANGUAGES_SECONDS
        self._recount: asyncio.Task[None] | None = None
        self._locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()
        self._unsettled: set[str] = set()

    @property
    def spec(self) -> IndexSpec:
        """The specification of the index."""
        return self.collection.spec

    @property
    def revision(self) -> int:
        """A number that changes when searches may see other versions of documents."""
        return self.collection.revision

    async def languages(self) -> Mapping[str, int]:
        """Return the number of documents for each language of text search.

        For a local store, the method counts again if the collection has changed, but at most once in five seconds
        (`note_language` can require an earlier count). For a remote store, the counts can be 65 seconds old: if
        they are older than five seconds, the method returns them and starts a recount in the background.
        """
        now = asyncio.get_running_loop().time()
        if self.collection.remote is None:
            if self._counted != (self.collection, self.collection.revision):
                await self._count_languages(now)
        elif now >= self._languages_until + _OLD_LANGUAGES_SECONDS:
            await self._count_languages(now)
        elif now >= self._languages_until and (self._recount is None or self._recount.done()):
            self._recount = asyncio.create_task(self._recount_languages(now))
        return self._languages

    async def _recount_languages(self, now: float) -> None:
        with contextlib.suppress(CausewayError):  # the next search counts again
            await self._count_languages(now)

    async def _count_languages(self, now: float) -> None:
        async with self._counting:
            if now >= self._languages_until:
                known = sorted(LANGUAGES)
                until, collection = self._languages_until, self.collection
                revision = collection.revision
                counts = await gather_all(
                    *(collection.count_documents(_language_scope(language)) for language in known)
                )
                self._languages = {language: count for language, count in zip(known, counts, strict=True) if count}
                self._counted = collection, revision
                if self._languages_until == until:
                    self._languages_until = now + _LANGUAGES_SECONDS

    def note_language(self, language: str) -> None:
        """Note the language of a stored document. If the index did not have it, the next search counts again."""
        if language not in self._languages:
            self._languages_until = -_OLD_LANGUAGES_SECONDS

    @contextlib.asynccontextmanager
    async def changing(self, document_id: str) -> AsyncIterator[None]:
        """Hold the lock of a document within this process. The mark is the lock between processes."""
        async with self._locks.setdefault(document_id, asyncio.Lock()):
            yield

    def scope(self, principal: Principal, filter_: Filter = NO_FILTER) -> Scope:
        """Return the scope of a caller: the documents that match the filter and that the caller may see."""
        return Scope(filter_, access.caller_tokens(principal))

    async def aclose(self) -> None:
        """Stop the background count."""
        if self._recount is not None:
            await cancel_and_wait(self._recount)

    async def check_sees_all(self, principal: Principal) -> None:
        """Check that the caller may remove or copy the index as a whole.

        Raises:
            PermissionDenied: The index has documents that the caller may not see.
        """
        all_documents = await self.collection.count_documents(EVERYTHING)
        if await self.collection.count_documents(self.scope(principal)) < all_documents:
            raise PermissionDenied(
                f"Index '{self.spec.name}' has documents that you may not see.", resource=self.spec.name
            )

    async def settle(self, document_id: str) -> None:
        """Remove the document's chunks of all generations that its record does not name, then its mark."""
        self._unsettled.add(document_id)
        record = (await self.collection.records([document_id])).get(document_id)
        await self.collection.remove_chunks(document_id, keep=record.generation if record else None)
        await self.collection.unmark(document_id)
        self._unsettled.discard(document_id)

    async def settle_again(self) -> None:
        """Settle the documents for which `settle` has failed. Until then this process renews their marks.

        A document that a writer is changing waits for the next call, because the writer may take minutes, and
        usually settles the document itself.
        """
        for document_id in list(self._unsettled):
            lock = self._locks.get(document_id)
            if lock is not None and lock.locked():
                continue
            with contextlib.suppress(CausewayError):  # the store is still unavailable, or the index is gone
                async with self.changing(document_id):
                    if document_id in self._unsettled:  # otherwise a writer has settled it meanwhile
                        await self.collection.mark(document_id)
                        await self.settle(document_id)

    async def settle_abandoned(self) -> list[str]:
        """Settle the documents with abandoned marks, or with chunks of another version. Return their ids.

        The result also contains the ids of abandoned marks without a document, for example `ports.store.REBUILD`.
        """
        settled = []
        for document_id in await self.collection.abandoned():
            with contextlib.suppress(Unavailable):  # another process settles it
                await self.collection.mark(document_id)
                if document_id.startswith("\0"):  # the mark of a freeze or a rebuild, without a document
                    await self.collection.unmark(document_id)
                else:
                    await self.settle(document_id)
                settled.append(document_id)
        return settled


def _language_scope(language: str) -> Scope:
    return Scope(Filter(must=(MatchAny(TEXT_LANGUAGE, (language,)),)))
