"""Where an index is on a Qdrant server, and how it comes and goes.

::

    <prefix>.<tenant>.<index>                    an alias: what it leads to is the index
    <prefix>.<tenant>.<index>.<digest or UUID>   a collection

Two processes that begin the same index at once begin the same collection, because its name depends on what it is
alone. One that is to replace another has a name of its own. A point tells what a collection is; until that is
published the point is a lease. `store.qdrant.QdrantStore.tidy` removes what no alias leads to and nobody holds.
An index may share a collection with others, too: `shared_location`.
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
    """An index in a collection of its own.

    Args:
        aliases: Tell where each index is.
        collection: Where its points are.
        alias: Leads to it.
        calls: Reach its points.

    Attributes:
        name: The collection's.
        key: Its own, unlike the collection's where many indexes are in one.
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
        """Number of shards, as far as is known."""
        return self.collection.shards

    @property
    def entry(self) -> Entry:
        """What the aliases say where the index is here."""
        return Entry(self.alias, self.name)

    @property
    def index_point(self) -> str:
        """Id of the point that tells what the index is."""
        return str(keys.index_point_id(self.alias))

    async def make(self, spec: IndexSpec) -> None:
        """Make the collection, if it is not there.

        Raises:
            Unavailable: The server does not do it.
        """
        await self.collection.make(spec.dimension, schema.PAYLOAD_INDEXES)
        self.copies.replicas = self.collection.replicas

    async def adapt(self) -> None:
        """Learn how the collection is made; see `ServerCollection.adapt`.

        Raises:
            Missing: It is gone.
        """
        await self.collection.adapt()
        self.copies.replicas = self.collection.replicas

    def lease(self, spec: IndexSpec, *, beside: bool) -> Lease:
        """Return the lease of an index that is not published yet; its point tells what it is."""
        said = {"spec": msgspec.json.encode(spec).decode(), "beside": beside}
        facts = payload.kind(schema.INDEX), schema.of_index(spec.tenant, spec.name)
        return Lease(self.index_point, said, facts, 0.0)

    async def spec(self) -> IndexSpec | None:
        """What the index says that it is; None where it does not say so yet.

        Raises:
            Missing: It is gone.
        """
        said = await self._said()
        return _spec.decode(said["spec"]) if said else None

    async def until(self) -> float:
        """End of the lease, in seconds since 1970; 0 where there was none.

        Raises:
            Missing: It is gone.
        """
        return float((await self._said()).get(schema.UNTIL, 0.0))

    async def is_aliased(self) -> bool:
        """Return whether the alias leads here."""
        try:
            told = await self.collection.connection.read(AsyncQdrantClient.get_collection_aliases, self.name)
        except Missing:
            return False
        return any(each.alias_name == self.alias for each in told.aliases)

    async def take_alias(self, instead_of: "Location | None") -> None:
        """Let the index be here, in one step.

        Raises:
            Unavailable: It is elsewhere than it should by now, or the nodes do not agree where it is.
        """
        told = (await self.aliases.read_each()).of(self.aliases.index_of(self.alias) or "")
        if len(told) > 1:
            raise Unavailable("The nodes of the Qdrant cluster do not agree where the index is.", retry_after=1)
        leads_to = told.pop()
        if leads_to not in (None, self.entry, instead_of.entry if instead_of else None):
            raise Unavailable("Another process has made the index meanwhile.")
        changes: list[Any] = []
        if leads_to is not None:
            changes.append(models.DeleteAliasOperation(delete_alias=models.DeleteAlias(alias_name=leads_to.alias)))
        made = models.CreateAlias(collection_name=self.name, alias_name=self.alias)
        changes.append(models.CreateAliasOperation(create_alias=made))
        await self.aliases.change(changes)

    async def remove(self) -> None:
        """Remove the index, and its alias with it."""
        try:
            await self.collection.connection.write(AsyncQdrantClient.delete_collection, self.name)
        except Missing:
            return

    async def _said(self) -> payload.Payload:
        points = await self.copies.retrieve([self.index_point], fields=True)
        return (points[self.index_point].payload or {}) if points else {}
