"""The indexes that are open, and which versions of their documents may be seen at this moment.

The catalogue decides what exists: a chunk is part of an index if the record of its document names its generation.
While chunks are written, or removed, that is not yet, or no longer, so: then their version is *hidden*, left out
inside every search, and the document carries a mark in the store. `Index.settle` removes what the catalogue does
not know and takes the mark away; it ends every upsert and deletion, whether that succeeded or not, and it is what
a start after a crash does for each mark it finds.
"""

import asyncio
import contextlib
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import structlog
from servicekit import keys
from servicekit.errors import InvalidRequest
from servicekit.principal import Principal

from retriever import access
from retriever.domain import NO_FILTER, Filter, IndexSpec, Version, no_such_index
from retriever.finishing import Finisher
from retriever.store.port import Collection, Scope, Store

_log = structlog.get_logger(__name__)


class Index:
    """An index and who works on it.

    Attributes:
        collection: Where it is stored.
        published: Whether it exists for others than those who write its first document.
        revision: Goes up whenever another version of a document becomes the one that is seen.
        writers: Number of upserts under way.
    """

    def __init__(self, collection: Collection, *, published: bool) -> None:
        self.collection = collection
        self.published = published
        self.revision = 0
        self.writers = 0
        self._hidden: frozenset[Version] = frozenset()
        # Weak: a lock is there as long as somebody holds it or waits for it.
        self._locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()

    @property
    def spec(self) -> IndexSpec:
        """What it is."""
        return self.collection.spec

    def lock(self, document_id: str) -> asyncio.Lock:
        """Held by whoever changes a document."""
        return self._locks.setdefault(document_id, asyncio.Lock())

    def scope(self, principal: Principal, filter_: Filter = NO_FILTER) -> Scope:
        """What the caller may see of it now."""
        return Scope(filter_, access.held_by(principal), self._hidden)

    def hide(self, version: Version) -> None:
        """Leaves a version's chunks out of searches from now on."""
        self._hidden |= {version}
        self.revision += 1

    def replace(self, old: Version | None, new: Version) -> None:
        """Shows one version's chunks and hides another's, in one step."""
        self._hidden = (self._hidden | ({old} if old else set())) - {new}
        self.revision += 1

    async def settle(self, document_id: str) -> None:
        """Removes the document's chunks of all generations that its record does not name; see the module."""
        record = (await self.collection.records([document_id])).get(document_id)
        await self.collection.remove_chunks(document_id, keep=record.generation if record else None)
        await self.collection.unmark(document_id)
        self._hidden = frozenset(version for version in self._hidden if version.document_id != document_id)


class Indexes:
    """All indexes of all tenants. Made by `open`.

    Attributes:
        finisher: For what must be done to its end once it has begun: commits, and settling after them.
    """

    def __init__(self, store: Store) -> None:
        self.finisher = Finisher()
        self._store = store
        self._indexes: dict[tuple[str, str], Index] = {}
        # Indexes come and go one at a time.
        self._changing = asyncio.Lock()

    @classmethod
    async def open(cls, store: Store) -> "Indexes":
        """The store's indexes, settled."""
        indexes = cls(store)
        for collection in await store.collections():
            index = Index(collection, published=True)
            marked = await collection.marked()
            for document_id in marked:
                await index.settle(document_id)
            if marked:
                _log.info("settled after an interruption", index=index.spec.name, documents=len(marked))
            indexes._indexes[index.spec.tenant, index.spec.name] = index
        return indexes

    def get(self, tenant: str, name: str) -> Index:
        """An index of a tenant.

        Raises:
            InvalidRequest: No index can have this name.
            NotFound: The tenant has none of this name.
        """
        index = self._published((tenant, keys.index_name(name)))
        if index is None:
            raise no_such_index(name)
        return index

    def of(self, tenant: str) -> list[Index]:
        """A tenant's indexes, ordered by name."""
        return sorted(
            (index for (owner, _), index in self._indexes.items() if owner == tenant and index.published),
            key=lambda index: index.spec.name,
        )

    @contextlib.asynccontextmanager
    async def writing(self, spec: IndexSpec) -> AsyncIterator[Index]:
        """The index to write a document to; made where it is not there, and gone again if nothing was committed.

        Raises:
            InvalidRequest: No index can have this name, or this one has vectors of another model or length.
        """
        key = spec.tenant, keys.index_name(spec.name)
        async with self._changing:
            index = self._indexes.get(key)
            if index is None:
                index = self._indexes[key] = Index(await self._store.create(spec), published=False)
            _check_vectors(index.spec, spec)
            index.writers += 1
        try:
            yield index
        finally:
            index.writers -= 1
            if not index.published:
                await self.finisher.finish(self._drop_unused(key, index))

    async def publish(self, index: Index) -> None:
        """Makes an index exist, if it does not yet."""
        if index.published:
            return
        async with self._changing:
            if not index.published:
                await index.collection.publish()
                index.published = True

    async def delete(self, tenant: str, name: str) -> None:
        """Removes an index; who still writes to it gets NotFound.

        Raises:
            NotFound: The tenant has none of this name.
        """
        async with self._changing:
            index = self.get(tenant, name)
            del self._indexes[tenant, name]
            await self.finisher.finish(index.collection.drop())

    async def load(
        self, spec: IndexSpec, snapshot: Path, check: Callable[[Index | None], Awaitable[None]]
    ) -> Index:
        """Makes an index from a snapshot, in the place of the one of the same name, in one step.

        Who still writes to the one that was there gets Unavailable, and finds the new one when trying again.

        Args:
            spec: What to make.
            snapshot: Its directory.
            check: Raises what speaks against replacing the index that is there, if there is one. Asked first, and
                again when the new one is built.

        Raises:
            InvalidRequest: No index can have this name, or the snapshot cannot be loaded; nothing changed.
        """
        key = spec.tenant, keys.index_name(spec.name)
        await check(self._published(key))
        collection = await self._store.restore(spec, snapshot)
        try:
            async with self._changing:
                await check(self._published(key))
                return await self.finisher.finish(self._put_in_place(key, collection))
        finally:
            index = self._indexes.get(key)
            if index is None or index.collection is not collection:
                await self.finisher.finish(collection.drop())

    def _published(self, key: tuple[str, str]) -> Index | None:
        index = self._indexes.get(key)
        return index if index is not None and index.published else None

    async def _put_in_place(self, key: tuple[str, str], collection: Collection) -> Index:
        old = self._indexes.get(key)  # it may be there for those alone who write its first document
        await collection.publish(old.collection if old else None)
        index = self._indexes[key] = Index(collection, published=True)
        return index

    async def aclose(self) -> None:
        """Waits for what has begun; the store may be closed then."""
        await self.finisher.aclose()

    async def _drop_unused(self, key: tuple[str, str], index: Index) -> None:
        async with self._changing:
            if not index.writers and not index.published and self._indexes.get(key) is index:
                del self._indexes[key]
                await index.collection.drop()


def _check_vectors(index: IndexSpec, wanted: IndexSpec) -> None:
    if index.embedding_model != wanted.embedding_model:
        raise InvalidRequest(
            f"Index '{index.name}' has vectors of the model {index.embedding_model!r}, "
            f"not of {wanted.embedding_model!r}.",
            field="embedding_model",
        )
    if index.dimension != wanted.dimension:
        raise InvalidRequest(
            f"Index '{index.name}' has vectors of length {index.dimension}, not {wanted.dimension}.",
            field="dimension",
        )
