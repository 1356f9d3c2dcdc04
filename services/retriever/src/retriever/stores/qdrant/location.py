"""Where a collection is on a Qdrant server, and how it comes and goes.

::

    <prefix>.<tenant>.<index>                    an alias: what it leads to is the index
    <prefix>.<tenant>.<index>.<digest or UUID>   a collection

Two processes that begin the same index at once begin the same collection, because its name depends on what it is
alone. One that is to replace another has a name of its own. A point tells what a collection is; until that is
published the point is a lease. `store.qdrant.QdrantStore.tidy` removes what no alias leads to and nobody holds.
"""

import hashlib
import uuid
from typing import Any

import msgspec
import structlog
from qdrant_client import AsyncQdrantClient, models
from servicekit import keys
from servicekit.errors import DeadlineExceeded, Unavailable

from retriever.domain.index import IndexSpec
from retriever.stores import payload
from retriever.stores.qdrant import schema
from retriever.stores.qdrant.connection import Connection
from retriever.stores.qdrant.copies import Copies
from retriever.stores.qdrant.layout import FAN_OUT_DELAY_MS, Layout, needed_write_consistency
from retriever.stores.qdrant.leases import Lease
from retriever.stores.qdrant.node import Missing

_log = structlog.get_logger(__name__)

_spec = msgspec.json.Decoder(IndexSpec)


class Location:
    """One collection on the server.

    Attributes:
        name: The collection's.
        alias: The index's.
        copies: Reads its points.
        shards: Number of shards, as far as is known.
    """

    def __init__(self, connection: Connection, layout: Layout, name: str, alias: str) -> None:
        self.connection = connection
        self.layout = layout
        self.name = name
        self.alias = alias
        self.copies = Copies(connection, name, layout.replicas)
        self.shards = layout.shards or 1

    @classmethod
    def of(cls, connection: Connection, layout: Layout, spec: IndexSpec, *, beside: bool) -> "Location":
        """The location of a new collection."""
        alias = keys.server_alias(layout.prefix, spec.tenant, spec.name)
        kept = uuid.uuid4().hex if beside else hashlib.sha256(msgspec.json.encode(spec)).hexdigest()[:32]
        return cls(connection, layout, f"{alias}.{kept}", alias)

    @property
    def index_point(self) -> str:
        """Id of the point that tells what the collection is."""
        return str(keys.index_point_id(self.alias))

    async def make(self, spec: IndexSpec) -> None:
        """Makes the collection, if it is not there.

        Raises:
            Unavailable: The server does not do it.
        """
        if not await self._exists():
            try:
                await self._create(spec)
            except (DeadlineExceeded, Unavailable):
                if not await self._exists():
                    raise  # else somebody was faster, or it was made without an answer
        await self.adapt()
        for field, kind in schema.PAYLOAD_INDEXES:
            await self.connection.write(AsyncQdrantClient.create_payload_index, self.name, field, kind, wait=True)

    async def adapt(self) -> None:
        """Learn how many copies the collection has, and correct how they are read and written.

        Reads that decide must meet every write, and a node that hangs must not hold reads. Collections that an
        older version made, or another configuration, may have it otherwise.

        Raises:
            Missing: It is gone.
        """
        told = await self.connection.read(AsyncQdrantClient.get_collection, self.name)
        params = told.config.params
        self.shards = params.shard_number or self.shards
        replicas = self.copies.replicas = params.replication_factor or 1
        if replicas == 1:
            return
        least = needed_write_consistency(replicas)
        taken = params.write_consistency_factor or 1
        if taken >= least and params.read_fan_out_delay_ms == FAN_OUT_DELAY_MS:
            return
        if taken < least:
            _log.warning("a collection has its write consistency raised", collection=self.name, copies=least)
        changed = models.CollectionParamsDiff(
            write_consistency_factor=max(taken, least), read_fan_out_delay_ms=FAN_OUT_DELAY_MS
        )
        await self.connection.write(AsyncQdrantClient.update_collection, self.name, collection_params=changed)

    async def _exists(self) -> bool:
        return await self.connection.read(AsyncQdrantClient.collection_exists, self.name)

    async def _create(self, spec: IndexSpec) -> None:
        await self.connection.write_once(
            AsyncQdrantClient.create_collection,
            self.name,
            vectors_config={payload.DENSE: self.layout.dense(spec.dimension)},
            sparse_vectors_config={payload.SPARSE: models.SparseVectorParams(modifier=models.Modifier.IDF)},
            shard_number=self.layout.shards or None,
            replication_factor=self.layout.replicas,
            write_consistency_factor=self.layout.write_consistency,
        )

    def lease(self, spec: IndexSpec) -> Lease:
        """The lease of a collection that is not published yet; its point tells what it is."""
        return Lease(self.index_point, {"spec": msgspec.json.encode(spec).decode()}, schema.INDEX, 0.0)

    async def spec(self) -> IndexSpec | None:
        """What the collection says that it is; None where it does not say so yet.

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
        """Whether the alias leads here."""
        try:
            told = await self.connection.read(AsyncQdrantClient.get_collection_aliases, self.name)
        except Missing:
            return False
        return any(each.alias_name == self.alias for each in told.aliases)

    async def take_alias(self, instead_of: "Location | None") -> None:
        """Lets the alias lead here, in one step.

        Raises:
            Unavailable: It leads elsewhere than it should by now.
        """
        aliases = await self.connection.read(AsyncQdrantClient.get_aliases)
        leads_to = {each.alias_name: each.collection_name for each in aliases.aliases}.get(self.alias)
        if leads_to not in (None, self.name, instead_of.name if instead_of else None):
            raise Unavailable("Another process has made the index meanwhile.")
        changes: list[Any] = []
        if leads_to is not None:
            changes.append(models.DeleteAliasOperation(delete_alias=models.DeleteAlias(alias_name=self.alias)))
        made = models.CreateAlias(collection_name=self.name, alias_name=self.alias)
        changes.append(models.CreateAliasOperation(create_alias=made))
        await self.connection.write_once(AsyncQdrantClient.update_collection_aliases, changes)

    async def remove(self) -> None:
        """Removes the collection, and its alias with it."""
        try:
            await self.connection.write(AsyncQdrantClient.delete_collection, self.name)
        except Missing:
            return

    async def _said(self) -> payload.Payload:
        points = await self.copies.retrieve([self.index_point], fields=True)
        return (points[self.index_point].payload or {}) if points else {}
