"""The indexes of all tenants: lookup, creation, replacement and deletion."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import structlog
from servicekit import keys
from servicekit.errors import CausewayError, Conflict, InvalidRequest, NotFound, Unavailable

from retriever.concurrency.shielding import Shield
from retriever.domain.index import IndexSpec, no_such_index
from retriever.indexes.open_index import Index
from retriever.ports.store import REBUILD, Collection, Store

_log = structlog.get_logger(__name__)

_TIDY_SECONDS = 15.0


class Indexes:
    """All indexes of all tenants. `open` creates it.

    Attributes:
        shield: Runs work that must not be interrupted, for example commits.
    """

    def __init__(self, store: Store) -> None:
        self.shield = Shield()
        self._store = store
        self._indexes: dict[tuple[str, str], Index] = {}
        # Serialises creation, replacement and deletion of indexes.
        self._changing = asyncio.Lock()
        self._tidying: asyncio.Task[None] | None = None
        self._interrupted: list[Index] = []

    @classmethod
    async def open(cls, store: Store) -> "Indexes":
        """Open the indexes of a store.

        In a shared store, settle abandoned documents now, and then regularly. In a store of one process, settle the
        documents of an index at its first use (`_open`).
        """
        indexes = cls(store)
        if store.is_shared:
            await indexes.tidy()
            indexes._tidying = asyncio.create_task(indexes._keep_tidying())
        return indexes

    async def tidy(self) -> None:
        """Settle the work that terminated processes, or failed calls of this one, have left in a shared store."""
        for index in list(self._indexes.values()):
            await index.settle_again()
        for collection in await self._store.tidy():
            index = self._of_collection(collection)
            if await _settle_abandoned(index) and index not in self._interrupted:
                self._interrupted.append(index)

    async def _keep_tidying(self) -> None:
        while True:
            await asyncio.sleep(_TIDY_SECONDS)
            try:
                await self.tidy()
            except CausewayError as error:
                _log.warning("abandoned work was not settled", why=error.message)
            except Exception:
                _log.exception("abandoned work was not settled")

    @property
    def is_shared(self) -> bool:
        """Whether other processes use the same indexes."""
        return self._store.is_shared

    async def with_notes(self) -> list[Index]:
        """Return the indexes of all tenants that have a note (`Collection.note`), except damaged indexes."""
        noted = [key for key, note in (await self._store.notes()).items() if note]
        if self._store.is_shared:
            return [index for key in noted if (index := await self._find(key))]
        return [index for key in noted if (index := await self._opened(*key))]

    def interrupted(self) -> list[Index]:
        """Return the indexes with an interrupted rebuild that `tidy` found since the last call."""
        found, self._interrupted = self._interrupted, []
        return found

    async def get(self, tenant: str, name: str, *, wait: bool = True) -> Index:
        """Return an index of a tenant.

        Args:
            tenant: The tenant.
            name: The name of the index.
            wait: See `Collection.is_current`.

        Raises:
            InvalidRequest: The name is not valid.
            NotFound: The tenant has no index with this name.
            Unavailable: The index cannot be opened.
        """
        key = tenant, keys.index_name(name)
        index = self._published(key)
        if index is None or not await index.collection.is_current(wait=wait):
            index = await (self._find(key) if self._store.is_shared else self._open(*key))
        if index is None:
            raise no_such_index(name)
        return index

    async def of_tenant(self, tenant: str) -> list[Index]:
        """Return a tenant's indexes, except damaged ones, ordered by name."""
        if self._store.is_shared:
            found = [index for index in await self._shared() if index.spec.tenant == tenant]
        else:
            own = [key for key in await self._store.notes() if key[0] == tenant]
            found = [index for key in own if (index := await self._opened(*key))]
        return sorted(found, key=lambda index: index.spec.name)

    async def names(self) -> list[tuple[str, str]]:
        """Return tenant and name of all indexes, including damaged ones, in order."""
        return sorted(await self._store.notes())

    @contextlib.asynccontextmanager
    async def changing(self, tenant: str, name: str, document_id: str) -> AsyncIterator[Index]:
        """Hold the lock of a document while the caller changes the document.

        Raises:
            NotFound: The tenant has no index with this name.
        """
        while True:
            index = await self.get(tenant, name)
            async with index.changing(document_id):
                if self._indexes.get((tenant, name)) is index:  # otherwise it was replaced during the wait
                    yield index
                    return

    async def create(self, spec: IndexSpec) -> Index:
        """Create an empty index.

        Raises:
            InvalidRequest: The name is not valid.
            Conflict: An index with this name exists.
        """
        key = spec.tenant, keys.index_name(spec.name)
        async with self._writing(key, spec) as index:
            # An index that `_writing` or a running upsert has just created is not published yet.
            if index.is_published or self._indexes.get(key) is not index or index.spec != spec:
                raise Conflict(f"Index '{spec.name}' exists already.", resource=spec.name)
            await self.shield.run(self.publish(index))
            return index

    @contextlib.asynccontextmanager
    async def writing(self, spec: IndexSpec) -> AsyncIterator[Index]:
        """Yield the index for an upsert. Create it if it does not exist, and remove it if nothing is committed.

        Raises:
            InvalidRequest: The name is not valid, or the index has vectors of another model or length.
        """
        async with self._writing((spec.tenant, keys.index_name(spec.name)), spec) as index:
            _check_vectors(index.spec, spec)
            yield index

    @contextlib.asynccontextmanager
    async def _writing(self, key: tuple[str, str], spec: IndexSpec) -> AsyncIterator[Index]:
        """Yield the existing index, whose specification may differ, or a new one. See `writing`."""
        with contextlib.suppress(NotFound):
            await self.get(*key)
        async with self._changing:
            index = self._indexes.get(key)
            if index is None:
                index = self._indexes[key] = Index(await self._store.create(spec), is_published=False)
            index.writers += 1
        try:
            yield index
        finally:
            index.writers -= 1
            if not index.is_published:
                await self.shield.run(self._drop_unused(key, index))

    async def publish(self, index: Index) -> None:
        """Publish an index if it is not published yet."""
        if index.is_published:
            return
        async with self._changing:
            if not index.is_published:
                await index.collection.publish()
                index.is_published = True

    async def delete(self, tenant: str, name: str) -> None:
        """Delete an index.

        Running upserts to it fail with NotFound. Those of other processes fail with Replaced, and a retry creates
        the index again.

        Raises:
            NotFound: The tenant has no index with this name.
        """
        index = await self.get(tenant, name)
        async with self._changing:
            if self._indexes.get((tenant, name)) is not index:
                raise no_such_index(name)
            del self._indexes[tenant, name]
            await self.shield.run(index.collection.drop())

    async def load(
        self, spec: IndexSpec, snapshot: Path, check: Callable[[Index | None], Awaitable[None]]
    ) -> Index:
        """Create an index from a snapshot, atomically replacing the index of the same name.

        Running upserts to the replaced index fail with Unavailable. A retry writes to the new index.

        Args:
            spec: The specification of the new index.
            snapshot: The directory of the snapshot.
            check: Raises an error if the existing index must not be replaced. Called at the start, and again when
                the new index is built.

        Raises:
            InvalidRequest: The name is not valid, or the snapshot cannot be loaded; nothing changed.
        """
        key = spec.tenant, keys.index_name(spec.name)
        with contextlib.suppress(NotFound):
            await self.get(*key)
        await check(self._published(key))
        collection = await self._store.restore(spec, snapshot)
        try:
            async with self._changing:
                await check(self._published(key))
                return await self.shield.run(self._put_in_place(key, collection))
        finally:
            await self.discard(collection)

    async def replace(self, index: Index, collection: Collection) -> Index:
        """Replace the collection of an index atomically. The caller must block commits (`Index.lock`).

        Raises:
            Conflict: The index was replaced or deleted meanwhile.
        """
        key = index.spec.tenant, index.spec.name
        async with self._changing:
            if self._indexes.get(key) is not index:
                raise Conflict(f"Index '{index.spec.name}' was replaced or deleted meanwhile.", resource=key[1])
            return await self.shield.run(self._put_in_place(key, collection))

    async def create_replacement(self, spec: IndexSpec) -> Collection:
        """Create an unpublished collection that will replace the collection of an existing index."""
        return await self._store.create(spec, is_replacement=True)

    async def discard(self, collection: Collection) -> None:
        """Remove a collection if no index uses it."""
        if all(index.collection is not collection for index in self._indexes.values()):
            await self.shield.run(collection.drop())

    async def _shared(self) -> list[Index]:
        return [self._of_collection(collection) for collection in await self._store.collections()]

    async def _opened(self, tenant: str, name: str) -> Index | None:
        try:
            return self._published((tenant, name)) or await self._open(tenant, name)
        except Unavailable as error:
            _log.error("an index cannot be opened", index=name, error=error.message, exc_info=error.__cause__)
            return None

    async def _open(self, tenant: str, name: str) -> Index | None:
        """Return the index of a store that is not shared. Settle the index first."""
        await self._store.find(tenant, name)  # may take long, so it runs without the lock
        async with self._changing:  # another collection may be replacing it
            known = self._published((tenant, name))
            collection = None if known else await self._store.find(tenant, name)
            if collection is None:
                return known
            index = self._indexes.get((tenant, name))
            if index is None or index.collection is not collection:
                index = Index(collection, is_published=True)
                await self.shield.run(_settle_abandoned(index))
                self._indexes[tenant, name] = index
            index.is_published = True
            return index

    async def _find(self, key: tuple[str, str]) -> Index | None:
        """Return the index that the shared store has now. Another process may have changed it."""
        collection = await self._store.find(*key)
        if collection is not None:
            return self._of_collection(collection)
        known = self._indexes.get(key)
        if known is not None and known.is_published:
            del self._indexes[key]
        return None

    def _of_collection(self, collection: Collection) -> Index:
        """Return the index of a published collection. Create it if necessary."""
        key = collection.spec.tenant, collection.spec.name
        known = self._indexes.get(key)
        if known is not None and known.collection is collection:
            known.is_published = True
            return known
        self._indexes[key] = Index(collection, is_published=True)
        return self._indexes[key]

    def _published(self, key: tuple[str, str]) -> Index | None:
        index = self._indexes.get(key)
        return index if index is not None and index.is_published else None

    async def _put_in_place(self, key: tuple[str, str], collection: Collection) -> Index:
        old = self._indexes.get(key)  # may be unpublished
        await collection.publish(old.collection if old else None)
        index = self._indexes[key] = Index(collection, is_published=True)
        return index

    async def aclose(self) -> None:
        """Wait for running work. Then the store may be closed."""
        if self._tidying is not None:
            self._tidying.cancel()
            await asyncio.gather(self._tidying, return_exceptions=True)
        for index in self._indexes.values():
            await index.aclose()
        await self.shield.aclose()

    async def _drop_unused(self, key: tuple[str, str], index: Index) -> None:
        async with self._changing:
            if not index.writers and not index.is_published and self._indexes.get(key) is index:
                del self._indexes[key]
                if not self._store.is_shared:  # another process may write to it; `Store.tidy` removes it
                    await index.collection.drop()


async def _settle_abandoned(index: Index) -> bool:
    """Settle abandoned work. Return whether it included a rebuild."""
    settled = await index.settle_abandoned()
    if settled:
        _log.info("settled after an interruption", index=index.spec.name, documents=len(settled))
    return REBUILD in settled


def _check_vectors(index: IndexSpec, requested: IndexSpec) -> None:
    if index.embedding_model != requested.embedding_model:
        raise InvalidRequest(
            f"Index '{index.name}' has vectors of the model {index.embedding_model!r}, "
            f"not of {requested.embedding_model!r}.",
            field="embedding_model",
        )
    if index.dimension != requested.dimension:
        raise InvalidRequest(
            f"Index '{index.name}' has vectors of length {index.dimension}, not {requested.dimension}.",
            field="dimension",
        )
