"""The registration of a kind of vector store: its settings and how to open it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import Field
from servicekit.settings import ServiceSettings

from retriever.concurrency.scheduler import Scheduler
from retriever.ports.store import Store
from retriever.stores.vector_storage import Quantization, VectorStorage


class StoreSettings(ServiceSettings):
    """The settings of all kinds of stores. Each kind adds its own in a subclass."""

    data_dir: Path = Field(
        Path(".data"),
        description="Directory of the embedded store (subdirectory `retriever`), of snapshots (`snapshots`, unless "
        "CAUSEWAY_SNAPSHOT_DIR is set) and of temporary files of backups (`backups`). Use a persistent disk.",
    )
    qdrant_quantization: Quantization = Field(
        "none",
        description="Compression of the vectors of new indexes in memory, on a Qdrant server and in the "
        "embedded engine (docs/retrieval.md).",
    )
    qdrant_on_disk: bool = Field(
        False, description="Leave the full vectors of new indexes on the disk, in both stores."
    )

    @property
    def vector_storage(self) -> VectorStorage:
        """The vector storage of new indexes."""
        return VectorStorage(self.qdrant_quantization, self.qdrant_on_disk)


S = TypeVar("S", bound=StoreSettings)


@dataclass(frozen=True, slots=True)
class StoreKind(Generic[S]):
    """A kind of vector store.

    Attributes:
        name: Name for messages.
        settings: Its settings. They become settings of the retriever, so their names must be unique.
        is_chosen: Returns whether the settings choose this kind.
        open: Opens the store. Work that blocks the event loop runs in slices of the scheduler.
        has_vector_storage: Whether the store implements `StoreSettings.vector_storage`. If not, the retriever
            refuses these settings.
    """

    name: str
    settings: type[S]
    is_chosen: Callable[[S], bool]
    open: Callable[[S, Scheduler], Awaitable[Store]]
    has_vector_storage: bool = False
