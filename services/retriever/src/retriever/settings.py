"""Settings of the retriever, read from the environment (``CAUSEWAY_…``)."""

from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr
from servicekit.settings import ServiceSettings


class Settings(ServiceSettings):
    """What the retriever can be told."""

    retriever_port: int = Field(50051, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    data_dir: Path = Field(Path(".data"), description="The store is kept in its subdirectory `retriever`.")
    qdrant_url: str | None = Field(
        None,
        description="A Qdrant server, `http://host:6334`, with the port of its gRPC (docs/qdrant.md); "
        "none: the embedded engine.",
    )
    qdrant_api_key: SecretStr | None = Field(None, description="The server's API key.")
    qdrant_prefix: str = Field(
        "causeway",
        pattern=r"^[A-Za-z0-9_-]{1,64}$",
        description="Begins the names of collections, so that several installations can share a server.",
    )
    qdrant_timeout: float = Field(10.0, gt=0, description="Seconds for one call of the server.")
    qdrant_shards: int = Field(0, ge=0, description="Shards of a new collection; 0: as many as the server wants.")
    qdrant_replicas: int = Field(1, ge=1, description="Copies of each shard of a new collection.")
    qdrant_write_consistency: int = Field(
        1, ge=1, description="Copies that must have taken a write before it is acknowledged."
    )
    qdrant_quantization: Literal["none", "scalar", "binary"] = Field(
        "none", description="How the vectors of a new collection are shortened in the server's memory."
    )
    qdrant_on_disk: bool = Field(False, description="Leave the full vectors of a new collection on the disk.")
    trace_content: bool = Field(False, description="Traces hold the words of search queries.")
    embeddings_file: Path | None = Field(
        None,
        description="YAML file of embedding models (docs/embeddings.md), ingest's too; none: the bundled one.",
    )
    rerankers_file: Path | None = Field(
        None, description="YAML file of rerankers (docs/retrieval.md); none: nothing is reranked."
    )
    model_cache: Path | None = Field(
        None,
        description="Directory of the bundled embedding model, as it was built; none: the user's cache directory.",
    )
    retrieve_top: int = Field(10, ge=1, le=1000, description="Passages where a request does not say how many.")
    retriever_embedding_threads: int = Field(2, ge=1, description="Queries that are embedded at a time.")
    retriever_upserts: int = Field(16, ge=1, description="Documents that are written at a time.")
    retriever_upserts_waiting: int = Field(
        256, ge=0, description="Documents that may wait for it; more are refused with RESOURCE_EXHAUSTED."
    )
    retriever_upsert_idle: float = Field(
        60.0, gt=0, description="Seconds to wait for the next message of an upsert."
    )
    snapshot_dir: Path | None = Field(
        None,
        description="Snapshots of indexes are written to it and loaded from it, each tenant's below a directory of "
        "its own; none: the subdirectory `snapshots` of the data directory.",
    )
    retriever_exact_up_to: int = Field(
        20_000, ge=0, description="An index with more chunks gets a graph (HNSW) when it is compacted."
    )
    retriever_compact_removed: int = Field(
        1000,
        ge=1,
        description="An index is compacted by itself once so many of its points, and a fifth of them, are removed.",
    )
    retriever_build_seconds: float = Field(
        3600.0, gt=0, description="Longest time for compacting, writing or loading one index."
    )
    retriever_build_memory_mb: int = Field(
        4096, ge=64, description="Most memory of the process that compacts, writes or loads an index."
    )
    retriever_min_free_mb: int = Field(
        256, ge=0, description="With less room on the disk nothing is written any more."
    )
