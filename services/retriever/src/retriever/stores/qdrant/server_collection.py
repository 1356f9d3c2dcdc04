"""A collection of a Qdrant server: its creation and its parameters."""

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
        connection: The connection to the server.
        layout: The parameters of new collections.
        name: The name of the collection.

    Attributes:
        replicas: Number of copies. Before `adapt`, the number in the layout.
        shards: Number of shards. Before `adapt`, the number in the layout.
    """

    def __init__(self, connection: Connection, layout: Layout, name: str) -> None:
        self.connection = connection
        self.layout = layout
        self.name = name
        self.replicas = layout.replicas
        self.shards = layout.shards or 1

    async def create(
        self, dimension: int, indexes: PayloadIndexes, graphs: models.HnswConfigDiff | None = None
    ) -> None:
        """Create the collection if it does not exist.

        Args:
            dimension: Length of the dense vectors.
            indexes: The payload indexes.
            graphs: The parameters of the graph; None: the server's default.

        Raises:
            Unavailable: The server fails to create the collection.
        """
        if not await self._exists():
            try:
                await self._create_collection(dimension, graphs)
            except (DeadlineExceeded, Unavailable):
                if not await self._exists():
                    raise  # otherwise another process, or this call, has created it
        await self.adapt()
        for field, kind in indexes:
            await self.connection.write(AsyncQdrantClient.create_payload_index, self.name, field, kind, wait=True)

    async def adapt(self) -> None:
        """Read the numbers of copies and shards of the collection, and correct its read and write parameters.

        Consistent reads must see every write, and a hanging node must not delay reads. Collections of an older
        version or of another configuration may have other parameters.

        Raises:
            Missing: The collection does not exist.
        """
        info = await self.connection.read(AsyncQdrantClient.get_collection, self.name)
        params = info.config.params
        self.shards = params.shard_number or self.shards
        self.replicas = params.replication_factor or 1
        if self.replicas == 1:
            return
        minimum = needed_write_consistency(self.replicas)
        current = params.write_consistency_factor or 1
        if current >= minimum and params.read_fan_out_delay_ms == FAN_OUT_DELAY_MS:
            return
        if current < minimum:
            _log.warning("the write consistency of a collection is raised", collection=self.name, copies=minimum)
        changed = models.CollectionParamsDiff(
            write_consistency_factor=max(current, minimum), read_fan_out_delay_ms=FAN_OUT_DELAY_MS
        )
        await self.connection.write(AsyncQdrantClient.update_collection, self.name, collection_params=changed)

    async def _exists(self) -> bool:
        return await self.connection.read(AsyncQdrantClient.collection_exists, self.name)

    async def _create_collection(self, dimension: int, graphs: models.HnswConfigDiff | None) -> None:
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
