"""A Qdrant server, or a cluster of them, through gRPC. Several processes may work on it at once.

`location` says which collections are an index's, `leases` which process works on them.
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
from servicekit.errors import CausewayError

from retriever.domain.index import IndexSpec
from retriever.stores.qdrant import leases, snapshots
from retriever.stores.qdrant.collection import QdrantCollection
from retriever.stores.qdrant.connection import Connection
from retriever.stores.qdrant.layout import Layout
from retriever.stores.qdrant.leases import Leases
from retriever.stores.qdrant.location import Location
from retriever.stores.qdrant.node import Missing

_log = structlog.get_logger(__name__)


class QdrantStore:
    """All indexes under one prefix; see `retriever.ports.store.Store`. Made by `open`.

    Args:
        connection: To the server.
        layout: How collections are made.
        lease_seconds: How long what a process works on is its own after it was heard of last.
    """

    is_shared = True

    def __init__(self, connection: Connection, layout: Layout, lease_seconds: float = leases.SECONDS) -> None:
        self._connection = connection
        self._layout = layout
        self._lease_seconds = lease_seconds
        self._holder = uuid.uuid4().hex
        self._collections: dict[str, QdrantCollection] = {}
        self._nameless: dict[str, float] = {}
        self._renewing: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls, connection: Connection, layout: Layout, lease_seconds: float = leases.SECONDS
    ) -> "QdrantStore":
        """The store, once the server was seen.

        Raises:
            Unavailable: It does not answer, or is too old.
        """
        await connection.check()
        store = cls(connection, layout, lease_seconds)
        store._renewing = asyncio.create_task(store._renew())
        return store

    async def collections(self) -> Sequence[QdrantCollection]:
        """The collections that aliases lead to."""
        begin = f"{self._layout.prefix}."
        told = await self._connection.read(AsyncQdrantClient.get_aliases)
        locations = [
            Location(self._connection, self._layout, each.collection_name, each.alias_name)
            for each in told.aliases
            if each.alias_name.startswith(begin)
        ]
        found = [await self._at(location) for location in locations]
        return [each for each in found if each is not None]

    async def notes(self) -> Mapping[tuple[str, str], bytes]:
        """The notes of the published collections."""
        return {(each.spec.tenant, each.spec.name): await each.note() for each in await self.collections()}

    async def find(self, tenant: str, name: str) -> QdrantCollection | None:
        """The collection that an index's alias leads to."""
        alias = keys.server_alias(self._layout.prefix, tenant, name)
        try:
            # One small call where there is none, however many others there are: anybody may ask for anything.
            await Location(self._connection, self._layout, alias, alias).spec()
        except Missing:
            return None
        told = await self._connection.read(AsyncQdrantClient.get_aliases)
        leads_to = {each.alias_name: each.collection_name for each in told.aliases}.get(alias)
        return (
            None if leads_to is None else await self._at(Location(self._connection, self._layout, leads_to, alias))
        )

    async def create(self, spec: IndexSpec, *, beside: bool = False) -> QdrantCollection:
        """A new collection, not published; of those that are not to replace another, the same to all."""
        location = Location.of(self._connection, self._layout, spec, beside=beside)
        await location.make(spec)
        collection = self._known(location, spec)
        # Where another process holds it, that one renews it, or publishes.
        await collection.leases.take(location.lease(spec))
        return collection

    async def restore(self, spec: IndexSpec, directory: Path) -> QdrantCollection:
        """A new collection with what a snapshot holds."""
        collection = await self.create(spec, beside=True)
        try:
            await snapshots.read(collection, spec, directory)
        except BaseException:
            await asyncio.shield(collection.drop())
            raise
        return collection

    async def tidy(self) -> None:
        """Removes collections without an alias whose lease has run out."""
        told = await self._connection.read(AsyncQdrantClient.get_aliases)
        aliased = {each.collection_name for each in told.aliases}
        found = await self._connection.read(AsyncQdrantClient.get_collections)
        for each in found.collections:
            alias, _, _ = each.name.rpartition(".")
            if each.name in aliased or not alias.startswith(f"{self._layout.prefix}."):
                continue
            try:
                await self._tidy(Location(self._connection, self._layout, each.name, alias))
            except Missing:
                continue

    async def aclose(self) -> None:
        """Lets go of what it holds, removes what it has begun and not published, and ends the connection."""
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.gather(self._renewing, return_exceptions=True)
        for collection in self._collections.values():
            with contextlib.suppress(CausewayError, Missing):
                await collection.let_go()
        await self._connection.aclose()

    async def _at(self, location: Location) -> QdrantCollection | None:
        """The collection at a location; None where it is gone by now."""
        known = self._collections.get(location.name)
        if known is not None and not known.is_gone:
            return known
        try:
            await location.adapt()
            spec = await location.spec()
        except Missing:
            return None
        return None if spec is None else self._known(location, spec)

    def _known(self, location: Location, spec: IndexSpec) -> QdrantCollection:
        known = self._collections.get(location.name)
        if known is None or known.is_gone:
            leases = Leases(self._connection, location.copies, location.name, self._holder, self._lease_seconds)
            known = QdrantCollection(location, leases, spec)
            self._collections = {name: each for name, each in self._collections.items() if not each.is_gone}
            self._collections[location.name] = known
        return known

    async def _tidy(self, location: Location) -> None:
        until = await location.until()
        if until == 0:
            # Begun, and not named yet: by a process that is about to, or that is gone.
            first_seen = self._nameless.setdefault(location.name, time.monotonic())
            abandoned = time.monotonic() > first_seen + 2 * self._lease_seconds
        else:
            abandoned = time.time() > until
        if abandoned:
            _log.info("removing a collection that was begun and left", collection=location.name)
            self._nameless.pop(location.name, None)
            await location.remove()

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._lease_seconds / 3)
            await leases.keep(each.leases for each in self._collections.values() if not each.is_gone)
