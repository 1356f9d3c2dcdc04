"""The location of an index on a Qdrant server: its collection and its alias.

::

    <prefix>.<tenant>.<index>                    an alias that points to the index
    <prefix>.<tenant>.<index>.<digest or UUID>   a collection

Two processes that create the same index concurrently create the same collection, because its name depends only on
the specification. A collection that will replace another has a unique name. A point has the specification. Until
the collection is published, the point is a lease. `stores.qdrant.store.QdrantStore.tidy` removes collections
without an alias and with an expired lease. An index may also share a collection with others (`shared_location`).
"""

import hashlib
import uuid
from typing import Any

import msgspec
from qdrant_client import AsyncQdrantClient, models
from servicekit import keys
from servicekit.errors import Unavailable

from retriever.domain.index import IndexSpec
from retriever.stores import payload
from retriever.stores.qdrant import schema
from retriever.stores.qdrant.aliases import Aliases, Entry
from retriever.stores.qdrant.connection import Calls
from retriever.stores.qdrant.copies import Copies
from retriever.stores.qdrant.leases import Lease
from retriever.stores.qdrant.node import Missing
from retriever.stores.qdrant.server_collection import ServerCollection

_spec = msgspec.json.Decoder(IndexSpec)


class Location:
    """An index in its own collection.

    Args:
        aliases: The aliases of the installation.
        collection: The collection of its points.
        alias: The alias of the index.
        calls: Calls the server.

    Attributes:
        name: The name of the collection.
        key: A unique key of the index, even in a shared collection.
        copies: Reads its points.
    """

    def __init__(
        self, aliases: Aliases, collection: ServerCollection, alias: str, calls: Calls | None = None
    ) -> None:
        self.aliases = aliases
        self.collection = collection
        self.name = collection.name
        self.key = collection.name
        self.alias = alias
        self.calls: Calls = calls or collection.connection
        self.copies = Copies(self.calls, self.name, collection.replicas)

    @staticmethod
    def new_name(alias: str, spec: IndexSpec, *, beside: bool) -> str:
        """Return the name of a new collection."""
        kept = uuid.uuid4().hex if beside else hashlib.sha256(msgspec.json.encode(spec)).hexdigest()[:32]
        return f"{alias}.{kept}"

    @property
    def shards(self) -> int:
        """The number of shards, as far as known."""
        return self.collection.shards

    @property
    def entry(self) -> Entry:
        """The entry of this location in the aliases."""
        return Entry(self.alias, self.name)

    @property
    def index_point(self) -> str:
        """The id of the point with the specification."""
        return str(keys.index_point_id(self.alias))

    async def make(self, spec: IndexSpec) -> None:
        """Create the collection if it does not exist.

        Raises:
            Unavailable: The server fails to create it.
        """
        await self.collection.make(spec.dimension, schema.PAYLOAD_INDEXES)
        self.copies.replicas = self.collection.replicas

    async def adapt(self) -> None:
        """Read the parameters of the collection; see `ServerCollection.adapt`.

        Raises:
            Missing: The collection is gone.
        """
        await self.collection.adapt()
        self.copies.replicas = self.collection.replicas

    def lease(self, spec: IndexSpec, *, beside: bool) -> Lease:
        """Return the lease of an unpublished index. Its point has the specification."""
        said = {"spec": msgspec.json.encode(spec).decode(), "beside": beside}
        facts = payload.kind(schema.INDEX), schema.of_index(spec.tenant, spec.name)
        return Lease(self.index_point, said, facts, 0.0)

    async def spec(self) -> IndexSpec | None:
        """Return the stored specification of the index, or None if it is not stored yet.

        Raises:
            Missing: The collection is gone.
        """
        said = await self._said()
        return _spec.decode(said["spec"]) if said else None

    async def until(self) -> float:
        """Return the end of the lease as a Unix time, or 0 if there was no lease.

        Raises:
            Missing: The collection is gone.
        """
        return float((await self._said()).get(schema.UNTIL, 0.0))

    async def is_aliased(self) -> bool:
        """Return whether the alias points here."""
        try:
            told = await self.collection.connection.read(AsyncQdrantClient.get_collection_aliases, self.name)
        except Missing:
            return False
        return any(each.alias_name == self.alias for each in told.aliases)

    async def take_alias(self, instead_of: "Location | None") -> None:
        """Point the alias here atomically.

        Raises:
            Unavailable: Another process has moved the alias, or the nodes do not agree.
        """
        told = (await self.aliases.read_each()).of(self.aliases.index_of(self.alias) or "")
        if len(told) > 1:
            raise Unavailable("The nodes of the Qdrant cluster do not agree where the index is.", retry_after=1)
        leads_to = told.pop()
        if leads_to not in (None, self.entry, instead_of.entry if instead_of else None):
            raise Unavailable("Another process has created the index meanwhile.")
        changes: list[Any] = []
        if leads_to is not None:
            changes.append(models.DeleteAliasOperation(delete_alias=models.DeleteAlias(alias_name=leads_to.alias)))
        made = models.CreateAlias(collection_name=self.name, alias_name=self.alias)
        changes.append(models.CreateAliasOperation(create_alias=made))
        await self.aliases.change(changes)

    async def remove(self) -> None:
        """Remove the index with its alias."""
        try:
            await self.collection.connection.write(AsyncQdrantClient.delete_collection, self.name)
        except Missing:
            return

    async def _said(self) -> payload.Payload:
        points = await self.copies.retrieve([self.index_point], fields=True)
        return (points[self.index_point].payload or {}) if points else {}
