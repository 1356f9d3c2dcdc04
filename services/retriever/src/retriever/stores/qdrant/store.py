"""The store on a Qdrant server or cluster, over gRPC. Several processes may use it concurrently.

`location` maps indexes to collections. `leases` lock them between processes.
"""

import asyncio
import contextlib
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

import structlog
from qdrant_client import AsyncQdrantClient
from servicekit import keys
from servicekit.errors import CausewayError, Unavailable

from retriever.domain.index import IndexSpec
from retriever.stores.qdrant import leases, schema, snapshots
from retriever.stores.qdrant.aliases import SPACE, AliasAnswer, Aliases, Entry
from retriever.stores.qdrant.collection import QdrantCollection
from retriever.stores.qdrant.connection import Connection
from retriever.stores.qdrant.layout import Layout
from retriever.stores.qdrant.leases import Leases
from retriever.stores.qdrant.location import Location
from retriever.stores.qdrant.node import Missing
from retriever.stores.qdrant.server_collection import ServerCollection
from retriever.stores.qdrant.shared_location import SharedLocation
from retriever.stores.qdrant.space import Space

_log = structlog.get_logger(__name__)

_TIDIED = 20_000
"""Maximum number of points of one incarnation to remove at a time."""
_IN_TURN = 8
"""Number of unshared collections to check for abandoned marks at a time."""


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
        self._aliases = Aliases(connection, layout.prefix)
        self._spaces: dict[str, Space] = {}
        self._collections: dict[str, QdrantCollection] = {}
        self._nameless: dict[str, float] = {}
        self._turn: str | None = None
        self._renewing: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls, connection: Connection, layout: Layout, lease_seconds: float = leases.SECONDS
    ) -> "QdrantStore":
        """Return the store after checking the server.

        Raises:
            Unavailable: The server does not answer, or is too old.
        """
        await connection.check()
        store = cls(connection, layout, lease_seconds)
        store._renewing = asyncio.create_task(store._renew())
        return store

    async def collections(self) -> Sequence[QdrantCollection]:
        """Return the collections with an alias."""
        entries = await self._aliases.read()
        found = [await self._at(self._location(entry)) for entry in entries.values()]
        return [each for each in found if each is not None]

    async def notes(self) -> Mapping[tuple[str, str], bytes]:
        """Return the notes of the published collections. The notes of a space need one call."""
        found: dict[tuple[str, str], bytes] = {}
        kept: dict[str, Mapping[str, bytes]] = {}
        for each in await self.collections():
            location = each.location
            if isinstance(location, SharedLocation):
                if location.name not in kept:
                    kept[location.name] = await self._space(location.name).notes()
                note = kept[location.name].get(location.incarnation, b"")
            else:
                note = await each.note()
            found[each.spec.tenant, each.spec.name] = note
        return found

    async def find(self, tenant: str, name: str) -> QdrantCollection | None:
        """Return the collection of an index's alias.

        Raises:
            Unavailable: The nodes do not agree on it at the moment.
        """
        index = keys.collection(tenant, name)
        # One call serves all concurrent callers, even for indexes that do not exist.
        entry = (await self._aliases.read()).get(index)
        found = None if entry is None else await self._at(self._location(entry))
        if found is not None:
            return found
        if not self._connection.is_cluster and entry is None:
            return None
        # A node that has just started may not know the index, or may return its old location.
        answers = (await self._aliases.read_each()).of(index)
        others = [await self._at(self._location(each)) for each in answers - {None, entry} if each]
        for each in others:
            if each is not None:
                return each
        if entry is not None and answers == {entry}:
            raise Unavailable(f"Index '{name}' cannot be read at the moment.", retry_after=1)
        return None

    async def create(self, spec: IndexSpec, *, beside: bool = False) -> QdrantCollection:
        """Create an unpublished collection. Unless it will replace another, all processes get the same one."""
        if not self._layout.shared:
            alias = keys.server_alias(self._layout.prefix, spec.tenant, spec.name)
            name = Location.new_name(alias, spec, beside=beside)
            return await self._begin(self._location(Entry(alias, name)), spec, beside=beside)
        space = self._space(Space.name_of(self._layout, spec))
        await space.ready(spec.dimension)
        if beside:
            return await self._begin(self._incarnation(space, spec, uuid.uuid4()), spec, beside=True)
        begun = await self._begun(space, spec)
        mine = begun or uuid.uuid4()
        collection = await self._begin(self._incarnation(space, spec, mine), spec, beside=False)
        # Two processes may have created one concurrently. Then both continue with the same one.
        first = mine if begun else await self._begun(space, spec)
        if first in (None, mine):
            return collection
        await collection.drop()
        return await self._begin(self._incarnation(space, spec, first), spec, beside=False)

    async def restore(self, spec: IndexSpec, directory: Path) -> QdrantCollection:
        """Create an unpublished collection from a snapshot."""
        collection = await self.create(spec, beside=True)
        try:
            await snapshots.read(collection, spec, directory)
        except BaseException:
            await asyncio.shield(collection.drop())
            raise
        return collection

    async def elsewhere(self) -> list[tuple[str, str]]:
        """Return tenant and name of the indexes that are not in the layout for new indexes."""
        specs = [each.spec for each in await self.collections() if not self._is_in_place(each)]
        return sorted((spec.tenant, spec.name) for spec in specs)

    def _is_in_place(self, collection: QdrantCollection) -> bool:
        if self._layout.shared:
            return collection.location.name == Space.name_of(self._layout, collection.spec)
        return not isinstance(collection.location, SharedLocation)

    async def tidy(self) -> Sequence[QdrantCollection]:
        """Remove collections, and points of spaces, without an alias and with an expired lease.

        Return the published collections that may have marks of terminated processes. The number of calls does not
        grow with the number of indexes: a space needs one call, and the other collections are checked in turn.
        """
        left: set[str] = set()
        found = (await self._connection.read(AsyncQdrantClient.get_collections)).collections
        answers = await self._aliases.read_each()
        aliased = {entry.collection for entries in answers.entries for entry in entries.values()}
        empty: set[str] = set()
        # Spaces come first, because they tell which indexes are empty.
        for each in sorted(found, key=lambda each: not self._is_space(each.name)):
            alias, _, _ = each.name.rpartition(".")
            try:
                if self._is_space(each.name):
                    space = self._space(each.name)
                    empty |= await self._tidy_space(space, answers)
                    left |= await space.left()
                elif (
                    each.name not in aliased and self._is_own(alias) and self._aliases.index_of(alias) not in empty
                ):
                    await self._tidy(self._location(Entry(alias, each.name)))
            except Missing:
                continue
        return await self._may_be_left(answers.entries[0], left)

    async def _may_be_left(self, entries: Mapping[str, Entry], left: set[str]) -> list[QdrantCollection]:
        own = sorted(entry for entry in entries.values() if not self._aliases.is_shared(entry.alias))
        wanted = set(self._in_turn(own))
        for entry in entries.values():
            is_shared = self._aliases.is_shared(entry.alias)
            known = self._collections.get(entry.alias if is_shared else entry.collection)
            is_left = is_shared and entry.alias.rpartition(".")[2] in left
            if is_left or (known is not None and not known.is_gone and known.may_be_left):
                wanted.add(entry)
        found = [await self._at(self._location(entry)) for entry in sorted(wanted)]
        return [each for each in found if each is not None]

    def _in_turn(self, entries: list[Entry]) -> list[Entry]:
        """Return all entries the first time. Later return the next few each time."""
        if self._turn is None:
            self._turn = ""
            return entries
        some = ([each for each in entries if each.alias > (self._turn or "")] + entries)[:_IN_TURN]
        self._turn = some[-1].alias if some else ""
        return some

    async def aclose(self) -> None:
        """Release leases, remove unpublished collections, and close the connection."""
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.gather(self._renewing, return_exceptions=True)
        for collection in self._collections.values():
            with contextlib.suppress(CausewayError, Missing):
                await collection.let_go()
        await self._connection.aclose()

    async def _at(self, location: Location) -> QdrantCollection | None:
        """Return the collection at a location, or None if it is gone."""
        known = self._collections.get(location.key)
        if known is not None and not known.is_gone:
            return known
        try:
            await location.adapt()
            spec = await location.spec()
        except Missing:
            return None
        return None if spec is None else self._known(location, spec)

    def _known(self, location: Location, spec: IndexSpec) -> QdrantCollection:
        known = self._collections.get(location.key)
        if known is None or known.is_gone:
            leases = Leases(location.calls, location.copies, location.name, self._holder, self._lease_seconds)
            known = QdrantCollection(location, leases, spec)
            self._collections = {key: each for key, each in self._collections.items() if not each.is_gone}
            self._collections[location.key] = known
        return known

    async def _begin(self, location: Location, spec: IndexSpec, *, beside: bool) -> QdrantCollection:
        await location.make(spec)
        collection = self._known(location, spec)
        # If another process holds the lease, that process renews or publishes it.
        await collection.leases.take(location.lease(spec, beside=beside))
        return collection

    def _location(self, entry: Entry) -> Location:
        if self._aliases.is_shared(entry.alias):
            return SharedLocation(self._aliases, self._space(entry.collection), entry.alias)
        collection = ServerCollection(self._connection, self._layout, entry.collection)
        return Location(self._aliases, collection, entry.alias)

    def _space(self, name: str) -> Space:
        return self._spaces.setdefault(name, Space(self._connection, self._layout, name))

    def _incarnation(self, space: Space, spec: IndexSpec, id_: uuid.UUID) -> SharedLocation:
        return SharedLocation(self._aliases, space, SharedLocation.alias_of(self._layout.prefix, spec, id_))

    async def _begun(self, space: Space, spec: IndexSpec) -> uuid.UUID | None:
        """Return the incarnation of an index that a process is creating."""
        held, now = await space.held(schema.of_index(spec.tenant, spec.name)), time.time()
        begun = [each.incarnation for each in held if each.spec == spec and each.until > now and not each.beside]
        if not begun:
            return None
        names = (await self._aliases.read_each()).names
        free = [each for each in begun if SharedLocation.alias_of(self._layout.prefix, spec, each) not in names]
        return free[0] if free else None

    def _is_space(self, collection: str) -> bool:
        return collection.rpartition(".")[0] == self._layout.prefix + SPACE

    def _is_own(self, alias: str) -> bool:
        return alias.startswith(f"{self._layout.prefix}.")

    async def _tidy_space(self, space: Space, answers: AliasAnswer) -> set[str]:
        """Remove abandoned incarnations. Return the indexes whose alias leads to an incarnation without points.

        A switch that the cluster decided too late leads there. Then the replaced incarnation is kept.
        """
        await space.seen()
        held, now = await space.held(), time.time()
        published = {entry.alias for entries in answers.entries for entry in entries.values()}
        there = {self._incarnation(space, each.spec, each.incarnation).alias for each in held}
        empty = {
            index: entry.alias
            for entries in answers.entries
            for index, entry in entries.items()
            if entry.collection == space.name and entry.alias not in there
        }
        for index, alias in empty.items():
            _log.error("the alias of an index leads to no points (docs/qdrant.md)", index=index, alias=alias)
        for each in held:
            location = self._incarnation(space, each.spec, each.incarnation)
            is_kept = location.alias in published or self._aliases.index_of(location.alias) in empty
            if each.until < now and not is_kept:
                await location.adapt()
                if location.alias in answers.names:
                    await location.remove()
                elif await location.clear(_TIDIED):
                    _log.info("removed the points of an index from a shared collection", index=each.spec.name)
        return set(empty)

    async def _tidy(self, location: Location) -> None:
        until = await location.until()
        if until == 0:
            # It has no specification yet. Its process is about to write it, or has terminated.
            first_seen = self._nameless.setdefault(location.name, time.monotonic())
            abandoned = time.monotonic() > first_seen + 2 * self._lease_seconds
        else:
            abandoned = time.time() > until
        if abandoned:
            _log.info("removing an abandoned collection", collection=location.name)
            self._nameless.pop(location.name, None)
            await location.remove()

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._lease_seconds / 3)
            await leases.keep(each.leases for each in self._collections.values() if not each.is_gone)
