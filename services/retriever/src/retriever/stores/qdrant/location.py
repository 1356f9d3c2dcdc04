"""The location of an index on a Qdrant server: its collection and its alias.

::

    <prefix>.<tenant>.<index>                    an alias that points to the index
    <prefix>.<tenant>.<index>.<digest or UUID>   a collection

Two processes that create the same index concurrently create the same collection, because its name depends only on
the specification. A collection that will replace another has a unique name. A point of the collection stores
the specification. Until the collection is published, this point is a lease. `stores.qdrant.tidying` removes
collections that have no alias and whose lease has expired. An index may also share a collection with others
(`shared_location`).
"""

import asyncio
import hashlib
import uuid
from collections.abc import Callable

import msgspec
import structlog
from qdrant_client import AsyncQdrantClient, models
from servicekit import keys
from servicekit.errors import DeadlineExceeded, Unavailable

from retriever.domain.index import IndexSpec
from retriever.stores import payload
from retriever.stores.qdrant import schema
from retriever.stores.qdrant.aliases import Aliases, Entry
from retriever.stores.qdrant.connection import Calls
from retriever.stores.qdrant.copies import Copies
from retriever.stores.qdrant.failures import Missing
from retriever.stores.qdrant.leases import Lease
from retriever.stores.qdrant.server_collection import ServerCollection

_log = structlog.get_logger(__name__)

_DISAGREEMENT = "The nodes of the Qdrant cluster do not agree where the index is."
_ATTEMPTS = 4
_RETRY_SECONDS = 0.5  # pause before a change of the alias is repeated

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
        is_undecided: Whether a change of the alias got no response, so that the cluster may still apply it.
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
        self.is_undecided = False

    @staticmethod
    def new_name(alias: str, spec: IndexSpec, *, is_replacement: bool) -> str:
        """Return the name of a new collection: unique, or the same in all processes that create the index."""
        suffix = uuid.uuid4().hex if is_replacement else hashlib.sha256(msgspec.json.encode(spec)).hexdigest()[:32]
        return f"{alias}.{suffix}"

    @property
    def shards(self) -> int:
        """The number of shards; see `ServerCollection`."""
        return self.collection.shards

    @property
    def entry(self) -> Entry:
        """The entry of this location in the aliases."""
        return Entry(self.alias, self.name)

    @property
    def index_point(self) -> str:
        """The id of the point with the specification."""
        return str(keys.index_point_id(self.alias))

    async def create(self, spec: IndexSpec) -> None:
        """Create the collection if it does not exist.

        Raises:
            Unavailable: The server fails to create the collection.
        """
        await self.collection.create(spec.dimension, schema.PAYLOAD_INDEXES)
        self.copies.replicas = self.collection.replicas

    async def adapt(self) -> None:
        """Read the parameters of the collection; see `ServerCollection.adapt`.

        Raises:
            Missing: The collection does not exist.
        """
        await self.collection.adapt()
        self.copies.replicas = self.collection.replicas

    def lease(self, spec: IndexSpec, *, is_replacement: bool) -> Lease:
        """Return the lease of an unpublished index. The point of the lease has the specification."""
        content = {"spec": msgspec.json.encode(spec).decode(), "beside": is_replacement}
        facts = payload.kind(schema.INDEX), schema.index_fact(spec.tenant, spec.name)
        return Lease(self.index_point, content, facts, 0.0)

    async def spec(self) -> IndexSpec | None:
        """Return the stored specification of the index, or None if it is not stored yet.

        Raises:
            Missing: The collection does not exist.
        """
        content = await self._payload()
        return _spec.decode(content["spec"]) if content else None

    async def lease_expiry(self) -> float:
        """Return the expiry of the lease as a Unix time, or 0 if the specification is not stored yet.

        Raises:
            Missing: The collection does not exist.
        """
        return float((await self._payload()).get(schema.UNTIL, 0.0))

    async def is_aliased(self) -> bool:
        """Return whether the alias points here."""
        try:
            info = await self.collection.connection.read(AsyncQdrantClient.get_collection_aliases, self.name)
        except Missing:
            return False
        return any(alias.alias_name == self.alias for alias in info.aliases)

    async def take_alias(self, replaced: "Location | None", check: Callable[[], object] = lambda: None) -> None:
        """Point the alias here atomically.

        A change without a response may be applied, at once or later. So this method reads the aliases, and repeats
        the change if necessary.

        Args:
            replaced: The location that the alias points to; None: the index is new.
            check: Called before each change. It raises an error if the other location may have changed meanwhile.

        Raises:
            Unavailable: Another process has moved the alias, or the nodes do not agree, or the cluster does not
                decide (`is_undecided`).
        """
        failure: DeadlineExceeded | Unavailable | None = None
        for _ in range(_ATTEMPTS):
            locations = (await self.aliases.read_each()).locations_of(self.aliases.index_of(self.alias) or "")
            if locations == {self.entry}:
                self.is_undecided = False
                return
            if len(locations) > 1:
                failure = Unavailable(_DISAGREEMENT, retry_after=1)
                if not self.is_undecided:
                    break
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            current = locations.pop()
            if current not in (None, replaced.entry if replaced else None):
                failure = Unavailable("Another process has created the index meanwhile.")
                break
            check()
            try:
                await self.aliases.change(self._changes(current))
            except (DeadlineExceeded, Unavailable) as error:
                failure, self.is_undecided = error, True
                await asyncio.sleep(_RETRY_SECONDS)
            except BaseException:
                self.is_undecided = True
                raise
            else:
                self.is_undecided = False
                return
        assert failure is not None
        raise failure

    def _changes(self, current: Entry | None) -> list[models.AliasOperations]:
        """Return the changes that point the alias here.

        The server stops at a change that it cannot apply, and keeps the earlier changes. So the new alias is the
        first change: if its collection does not exist, the old alias remains. An alias of the same name is
        replaced.
        """
        created = models.CreateAlias(collection_name=self.name, alias_name=self.alias)
        changes: list[models.AliasOperations] = [models.CreateAliasOperation(create_alias=created)]
        if current is not None and current.alias != self.alias:
            deleted = models.DeleteAlias(alias_name=current.alias)
            changes.append(models.DeleteAliasOperation(delete_alias=deleted))
        return changes

    async def remove(self) -> None:
        """Remove the index with its alias."""
        try:
            await self.collection.connection.write(AsyncQdrantClient.delete_collection, self.name)
        except Missing:
            return

    async def remove_replaced(self) -> None:
        """Remove the index after its alias has moved. If this fails, `tidying` removes the index later."""
        try:
            await self.remove()
        except (DeadlineExceeded, Unavailable) as error:
            _log.warning("a replaced index is removed later", collection=self.name, why=error.message)

    async def _payload(self) -> payload.Payload:
        points = await self.copies.retrieve([self.index_point], fields=True)
        return (points[self.index_point].payload or {}) if points else {}
