"""The parameters to create, write and read collections on a Qdrant server."""

from dataclasses import dataclass, field

from qdrant_client import models

from retriever.stores.vector_storage import QUANTILE, VectorStorage

ORDERING = models.WriteOrdering.MEDIUM
"""Conditional writes go through a leader that is elected among the live nodes. With `STRONG` they would go through
a permanent leader, and fail while it is down."""

CONSISTENCY = models.ReadConsistencyType.QUORUM
"""A consistent read compares more than half of the copies. `MAJORITY` would read all copies, and fail while a node
is down."""

FAN_OUT_DELAY_MS = 200
"""Time after which a node also reads a second copy if the first copy has not responded."""


def quorum(replicas: int) -> int:
    """Return the number of copies that a read with `CONSISTENCY` compares."""
    return replicas // 2 + 1


def needed_write_consistency(replicas: int) -> int:
    """Return the number of copies that must store a write so that each read with `CONSISTENCY` sees it."""
    return replicas - quorum(replicas) + 1


@dataclass(frozen=True, slots=True)
class Layout:
    """The parameters of collections on the server.

    Attributes:
        prefix: Prefix of all names. Installations with different prefixes can share a server.
        shards: Shards of each collection; 0: the server's default.
        replicas: Copies of each shard.
        write_consistency: Copies that must store a write before it is acknowledged.
        vectors: The storage of dense vectors of new collections.
        shared: Whether new indexes share a collection with others of the same model.
    """

    prefix: str = "causeway"
    shards: int = 0
    replicas: int = 1
    write_consistency: int = 1
    vectors: VectorStorage = field(default_factory=VectorStorage)
    shared: bool = False

    def dense(self, dimension: int) -> models.VectorParams:
        """Return the parameters of the dense vectors."""
        quantization: models.QuantizationConfig | None = None
        if self.vectors.quantization == "scalar":
            int8 = models.ScalarQuantizationConfig(type=models.ScalarType.INT8, quantile=QUANTILE, always_ram=True)
            quantization = models.ScalarQuantization(scalar=int8)
        elif self.vectors.quantization == "binary":
            quantization = models.BinaryQuantization(binary=models.BinaryQuantizationConfig(always_ram=True))
        return models.VectorParams(
            size=dimension,
            distance=models.Distance.COSINE,
            on_disk=self.vectors.on_disk,
            quantization_config=quantization,
        )

    @property
    def search(self) -> models.SearchParams | None:
        """The search parameters that rescore quantized candidates; None for full vectors."""
        if self.vectors.oversampling is None:
            return None
        quantization = models.QuantizationSearchParams(rescore=True, oversampling=self.vectors.oversampling)
        return models.SearchParams(quantization=quantization)
