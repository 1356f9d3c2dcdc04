"""A collection of a Qdrant server: how it is made, and how its copies are read and written."""

from collections.abc import Sequence

import structlog
from qdrant_client import AsyncQdrantClient, models
from servicekit.errors import DeadlineExceeded, Unavailable

from retriever.stores import payload
from retriever.stores.qdrant.connection import Connection
from retriever.stores.qdrant.layout import FAN_OUT_DELAY_MS, Layout, needed_write_consistency

_log = structlog.get_logger(__name__)

PayloadIndexes = Sequence[tuple[str, models.PayloadSchemaType | models.PayloadSchemaParams]]


class ServerCollection:
    """A collection.

    Args:
        connection: To the server.
        layout: How it is made.
        name: Its name.

    Attributes:
        replicas: Number of copies, as far as is known.
        shards: Number of shards, as far as is known.
    """

    def __init__(self, connection: Connection, layout: Layout, name: str) -> None:
        self.connection = connection
        self.layout = layout
        self.name = name
        self.replicas = layout.replicas
        self.shards = layout.shards or 1

    async def make(
        self, dimension: int, indexes: PayloadIndexes, graphs: models.HnswConfigDiff | None = None
    ) -> None:
        """Make the collection, if it is not there.

        Args:
            dimension: Of its vectors.
            indexes: Of the payload.
            graphs: How vectors are connected; None: as the server wants.

        Raises:
            Unavailable: The server does not do it.
        """
        if not await self._exists():
            try:
                await self._create(dimension, graphs)
            except (DeadlineExceeded, Unavailable):
                if not await self._exists():
                    raise  # else somebody was faster, or it was made without an answer
        await self.adapt()
        for field, kind in indexes:
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
        self.replicas = params.replication_factor or 1
        if self.replicas == 1:
            return
        least = needed_write_consistency(self.replicas)
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

    async def _create(self, dimension: int, graphs: models.HnswConfigDiff | None) -> None:
        await self.connection.write_once(
            AsyncQdrantClient.create_collection,
            self.name,
            vectors_config={payload.DENSE: self.layout.dense(dimension)},
            sparse_vectors_config={payload.SPARSE: models.SparseVectorParams(modifier=models.Modifier.IDF)},
            hnsw_config=graphs,
            shard_number=self.layout.shards or None,
            replication_factor=self.layout.replicas,
            write_consistency_factor=self.layout.write_consistency,
        )
