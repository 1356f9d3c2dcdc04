"""The store on a Qdrant server or cluster, over gRPC. Several processes may use it concurrently.

`location` maps indexes to collections. `leases` lock them between processes.
"""

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

from servicekit import keys
from servicekit.errors import CausewayError, Unavailable

from retriever.domain.index import IndexSpec
from retriever.stores import payload
from retriever.stores.qdrant import leases, schema, snapshots
from retriever.stores.qdrant.aliases import Entry
from retriever.stores.qdrant.collection import QdrantCollection
from retriever.stores.qdrant.connection import Connection
from retriever.stores.qdrant.copies import Copies
from retriever.stores.qdrant.failures import Missing
from retriever.stores.qdrant.incarnation import Incarnation
from retriever.stores.qdrant.layout import Layout
from retriever.stores.qdrant.leases import Lease, Leases
from retriever.stores.qdrant.location import Location
from retriever.stores.qdrant.locations import Locations
from retriever.stores.qdrant.renewals import RENEWAL_FRACTION
from retriever.stores.qdrant.shared_location import SharedLocation
from retriever.stores.qdrant.space import Space
from retriever.stores.qdrant.tidying import Tidying

_CREATION_SECONDS = 10.0
"""Duration of the lease for creating an index, and the maximum time to wait for it."""
_CREATION_POLL_SECONDS = 0.05


class QdrantStore:
    """All indexes under one prefix; see `ports.store.Store`. `open` creates it.

    Args:
        connection: The connection to the server.
        layout: The parameters of new collections.
        lease_seconds: Duration of a lease.
    """

    is_shared = True

    def __init__(self, connection: Connection, layout: Layout, lease_seconds: float = leases.SECONDS) -> None:
        self._connection = connection
        self._layout = layout
        self._lease_seconds = lease_seconds
        self._holder = uuid.uuid4().hex
        self._locations = Locations(connection, layout)
        self._tidying = Tidying(connection, self._locations, layout.prefix, lease_seconds)
        self._collections: dict[str, QdrantCollection] = {}
        self._renewing: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls, connection: Connection, layout: Layout, lease_seconds: float = leases.SECONDS
    ) -> "QdrantStore":
        """Return the store after checking the server.

        Raises:
            Unavailable: The server does not respond, or is too old.
        """
        await connection.check()
        store = cls(connection, layout, lease_seconds)
        store._renewing = asyncio.create_task(store._renew())
        return store

    async def collections(self) -> Sequence[QdrantCollection]:
        """Return the collections with an alias."""
        entries = await self._locations.aliases.read()
        found = [await self._at(self._locations.at(entry)) for entry in entries.values()]
        return [collection for collection in found if collection is not None]

    async def notes(self) -> Mapping[tuple[str, str], bytes]:
        """Return the notes of the published collections. The notes of a space need one call."""
        found: dict[tuple[str, str], bytes] = {}
        by_space: dict[str, Mapping[str, bytes]] = {}
        for collection in await self.collections():
            location = collection.location
            if isinstance(location, SharedLocation):
                if location.name not in by_space:
                    by_space[location.name] = await self._locations.space(location.name).notes()
                note = by_space[location.name].get(location.incarnation, b"")
            else:
                note = await collection.note()
            found[collection.spec.tenant, collection.spec.name] = note
        return found

    async def find(self, tenant: str, name: str) -> QdrantCollection | None:
        """Return the collection that an index's alias points to.

        Raises:
            Unavailable: The nodes do not agree on the collection at the moment.
        """
        index = keys.collection(tenant, name)
        # One call serves all concurrent callers, even for indexes that do not exist.
        entry = (await self._locations.aliases.read()).get(index)
        found = None if entry is None else await self._at(self._locations.at(entry))
        if found is not None:
            return found
        if not self._connection.is_cluster and entry is None:
            return None
        # A node that has just started may not have the index, or may return its old location.
        locations = (await self._locations.aliases.read_each()).locations_of(index)
        others = [
            await self._at(self._locations.at(location)) for location in locations - {None, entry} if location
        ]
        for other in others:
            if other is not None:
                return other
        if entry is not None and locations == {entry}:
            raise Unavailable(f"Index '{name}' cannot be read at the moment.", retry_after=1)
        return None

    async def create(self, spec: IndexSpec, *, is_replacement: bool = False) -> QdrantCollection:
        """Create an unpublished collection. Without ``is_replacement``, all processes get the same collection."""
        if not self._layout.shared:
            alias = keys.server_alias(self._layout.prefix, spec.tenant, spec.name)
            name = Location.new_name(alias, spec, is_replacement=is_replacement)
            return await self._start(self._locations.at(Entry(alias, name)), spec, is_replacement=is_replacement)
        space = self._locations.space(Space.name_of(self._layout, spec))
        await space.create_once(spec.dimension)
        if is_replacement:
            return await self._start(
                self._locations.incarnation(space, spec, uuid.uuid4()), spec, is_replacement=True
            )
        async with self._creation_lease(space, spec):
            incarnation = await self._unfinished_incarnation(space, spec) or uuid.uuid4()
            return await self._start(
                self._locations.incarnation(space, spec, incarnation), spec, is_replacement=False
            )

    async def restore(self, spec: IndexSpec, directory: Path) -> QdrantCollection:
        """Create an unpublished collection from a snapshot."""
        collection = await self.create(spec, is_replacement=True)
        try:
            await snapshots.read(collection, spec, directory)
        except BaseException:
            await asyncio.shield(collection.drop())
            raise
        return collection

    async def indexes_to_move(self) -> list[tuple[str, str]]:
        """Return tenant and name of the indexes that do not have the layout for new indexes."""
        specs = [collection.spec for collection in await self.collections() if not self._is_in_place(collection)]
        return sorted((spec.tenant, spec.name) for spec in specs)

    def _is_in_place(self, collection: QdrantCollection) -> bool:
        if self._layout.shared:
            return collection.location.name == Space.name_of(self._layout, collection.spec)
        return not isinstance(collection.location, SharedLocation)

    async def tidy(self) -> Sequence[QdrantCollection]:
        """Remove abandoned collections and incarnations (`tidying`).

        Return the published collections that may have marks of terminated processes.
        """
        result = await self._tidying.run()
        to_check = set(result.to_check)
        for entry in result.entries:
            is_shared = self._locations.aliases.is_shared(entry.alias)
            known = self._collections.get(entry.alias if is_shared else entry.collection)
            is_left = is_shared and entry.alias.rpartition(".")[2] in result.with_abandoned_marks
            if is_left or (known is not None and not known.is_removed and known.may_have_abandoned_work):
                to_check.add(entry)
        found = [await self._at(self._locations.at(entry)) for entry in sorted(to_check)]
        return [collection for collection in found if collection is not None]

    async def aclose(self) -> None:
        """Release leases, remove unpublished collections, and close the connection."""
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.gather(self._renewing, return_exceptions=True)
        for collection in self._collections.values():
            with contextlib.suppress(CausewayError, Missing):
                await collection.release()
        await self._connection.aclose()

    async def _at(self, location: Location) -> QdrantCollection | None:
        """Return the collection at a location, or None if it does not exist."""
        known = self._collections.get(location.key)
        if known is not None and not known.is_removed:
            return known
        try:
            await location.adapt()
            spec = await location.spec()
        except Missing:
            return None
        return None if spec is None else self._known(location, spec)

    def _known(self, location: Location, spec: IndexSpec) -> QdrantCollection:
        known = self._collections.get(location.key)
        if known is None or known.is_removed:
            leases = Leases(location.calls, location.copies, location.name, self._holder, self._lease_seconds)
            known = QdrantCollection(location, leases, spec)
            self._collections = {
                key: collection for key, collection in self._collections.items() if not collection.is_removed
            }
            self._collections[location.key] = known
        return known

    async def _start(self, location: Location, spec: IndexSpec, *, is_replacement: bool) -> QdrantCollection:
        await location.create(spec)
        collection = self._known(location, spec)
        # If another process holds the lease, that process renews or publishes it.
        await collection.leases.take(location.lease(spec, is_replacement=is_replacement))
        return collection

    @contextlib.asynccontextmanager
    async def _creation_lease(self, space: Space, spec: IndexSpec) -> AsyncIterator[None]:
        """Hold the lease for creating an index, so that all processes create the same incarnation.

        Raises:
            Unavailable: Another process holds the lease for too long.
        """
        # The lease is the only point of an incarnation of its own.
        point = keys.creation_point_id(keys.collection(spec.tenant, spec.name))
        calls, id_ = Incarnation(self._connection, point), str(point)
        copies = Copies(calls, space.name, space.replicas)
        creators = Leases(calls, copies, space.name, self._holder, _CREATION_SECONDS)
        lease = Lease(id_, {}, (payload.kind(schema.CREATION),), 0.0)
        end = time.monotonic() + _CREATION_SECONDS
        while not await creators.take(lease):
            if time.monotonic() > end:
                raise Unavailable(f"Another process is creating index '{spec.name}'.", retry_after=1)
            await asyncio.sleep(_CREATION_POLL_SECONDS)
        try:
            yield
            lease.check()
        finally:
            with contextlib.suppress(CausewayError):  # the lease expires soon
                await creators.give_up(id_)

    async def _unfinished_incarnation(self, space: Space, spec: IndexSpec) -> uuid.UUID | None:
        """Return the incarnation that a process is creating for an index, or None."""
        held, now = await space.incarnations(schema.index_fact(spec.tenant, spec.name)), time.time()
        begun = [
            stored.incarnation
            for stored in held
            if stored.spec == spec and stored.until > now and not stored.is_replacement
        ]
        if not begun:
            return None
        names = (await self._locations.aliases.read_each()).names
        free = [
            incarnation
            for incarnation in begun
            if SharedLocation.alias_of(self._layout.prefix, spec, incarnation) not in names
        ]
        return free[0] if free else None

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._lease_seconds * RENEWAL_FRACTION)
            await leases.renew_all(
                collection.leases for collection in self._collections.values() if not collection.is_removed
            )
