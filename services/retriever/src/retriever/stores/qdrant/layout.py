"""How collections are made, written and read on a Qdrant server."""

from dataclasses import dataclass, field

from qdrant_client import models

from retriever.stores.vector_storage import OVERSAMPLING, QUANTILE, VectorStorage

ORDERING = models.WriteOrdering.MEDIUM
"""Conditional writes go through the highest node that is alive. With `STRONG` they go through the highest node of
all, and fail for as long as that one is away."""

CONSISTENCY = models.ReadConsistencyType.QUORUM
"""A read that decides asks more than half of the copies. `MAJORITY` asks all, and fails while one is away."""

FAN_OUT_DELAY_MS = 200
"""After this time a node asks a second copy, too, when the first one does not answer."""


def quorum(replicas: int) -> int:
    """Return the number of copies that a read with `CONSISTENCY` asks."""
    return replicas // 2 + 1


def needed_write_consistency(replicas: int) -> int:
    """Return the number of copies that must take a write so that each read with `CONSISTENCY` meets it."""
    return replicas - quorum(replicas) + 1


@dataclass(frozen=True, slots=True)
class Layout:
    """How collections are made on the server.

    Attributes:
        prefix: Begins the names of all; two installations may share a server under different ones.
        shards: Of each collection; 0: as many as the server wants.
        replicas: Copies of each shard.
        write_consistency: Copies that must have taken a write before it is answered.
        vectors: How new collections keep their dense vectors.
        shared: Whether new indexes share a collection with others of the same model.
    """

    prefix: str = "causeway"
    shards: int = 0
    replicas: int = 1
    write_consistency: int = 1
    vectors: VectorStorage = field(default_factory=VectorStorage)
    shared: bool = False

    def dense(self, dimension: int) -> models.VectorParams:
        """Parameters of the vectors."""
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
        """How to search: what was quantized is compared once more by the full vectors."""
        if self.vectors.quantization == "none":
            return None
        how = models.QuantizationSearchParams(rescore=True, oversampling=OVERSAMPLING)
        return models.SearchParams(quantization=how)
