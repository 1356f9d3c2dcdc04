"""Settings of the retriever, read from the environment (``CAUSEWAY_…``)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import Field, create_model
from servicekit.settings import GrpcServiceSettings

from retriever.stores.kind import StoreKind, StoreSettings
from retriever.stores.registry import STORES


class RetrieverSettings(StoreSettings, GrpcServiceSettings):
    """The settings that do not depend on the vector store."""

    retriever_port: int = Field(50051, ge=0, le=65535, description="Port to listen on; 0 chooses a free port.")
    trace_content: bool = Field(False, description="Whether traces have the text of search queries.")
    embeddings_file: Path | None = Field(
        None,
        description="YAML file of embedding models (docs/embeddings.md), the same for retriever and ingest. Unset: "
        "the bundled model, and the model of `make multilingual` if it is built.",
    )
    rerankers_file: Path | None = Field(
        None, description="YAML file of rerankers (docs/retrieval.md). Unset: nothing is reranked."
    )
    model_cache: Path | None = Field(
        None,
        description="Directory of the local embedding models, which `make setup` and `make multilingual` build. "
        "Unset: the user's cache directory.",
    )
    retriever_embedding_threads: int = Field(
        2,
        ge=1,
        description="Number of threads of each local embedding model: the texts that it embeds concurrently.",
    )
    snapshot_dir: Path | None = Field(
        None,
        description="Directory of the snapshots of indexes, with a subdirectory for each tenant. Unset: the "
        "subdirectory `snapshots` of the data directory.",
    )
    max_tenant_snapshots: int = Field(
        100, ge=1, description="Snapshots that a tenant may have; more are refused with 409."
    )


def with_stores(kinds: Sequence[StoreKind[Any]]) -> type[RetrieverSettings]:
    """Return the settings class of the retriever with the settings of these kinds of stores."""
    bases: tuple[type[RetrieverSettings], ...] = (RetrieverSettings, *(kind.settings for kind in kinds))
    return create_model("Settings", __base__=bases)


Settings = with_stores(STORES)
