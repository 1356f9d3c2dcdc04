"""The embedded engine as a kind of store."""

from pydantic import Field
from servicekit import descriptors
from servicekit.errors import InvalidRequest

from retriever.concurrency.scheduler import Scheduler
from retriever.ports.store import Store
from retriever.storage import files
from retriever.stores.edge.builder import Limits
from retriever.stores.edge.compaction import Policy
from retriever.stores.edge.parking import OpenLimits
from retriever.stores.edge.store import EdgeStore
from retriever.stores.kind import StoreKind, StoreSettings

_MEGABYTE = 1024 * 1024


class EdgeSettings(StoreSettings):
    """Settings of the embedded engine."""

    retriever_exact_up_to: int = Field(
        20_000, ge=0, description="An index with more chunks gets a graph (HNSW) when it is compacted."
    )
    retriever_build_memory_mb: int = Field(
        4096,
        ge=64,
        description="Maximum memory of the process that compacts an index, or writes or loads a snapshot.",
    )
    retriever_min_free_mb: int = Field(
        256, ge=0, description="Minimum free disk space. With less free space, the retriever refuses writes."
    )
    retriever_open_indexes: int = Field(
        1000,
        ge=1,
        description="Maximum number of open indexes. Each needs a thread and a file descriptor. Above the "
        "maximum, the retriever closes the index that was not used for the longest time.",
    )
    retriever_open_mb: int = Field(
        4096,
        ge=1,
        description="Maximum memory of the open indexes with the pages of their files, as the retriever estimates "
        "it. One index may be larger.",
    )
    retriever_lock_seconds: float = Field(
        0.0,
        ge=0,
        description="Maximum wait at the start for another process to release the store. So a new process can "
        "start early and take over when the old process has finished its requests.",
    )


async def _open(settings: EdgeSettings, scheduler: Scheduler) -> Store:
    directory = settings.data_dir / "retriever"
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidRequest(
            f"CAUSEWAY_DATA_DIR: cannot create the directory {directory}: {error.strerror}.", field="data_dir"
        ) from None
    await files.wait_until_unlocked(directory, settings.retriever_lock_seconds)
    return EdgeStore(
        directory,
        scheduler,
        settings.retriever_min_free_mb * _MEGABYTE,
        exact_up_to=settings.retriever_exact_up_to,
        policy=Policy(added=max(1, settings.retriever_exact_up_to)),
        limits=Limits(memory=settings.retriever_build_memory_mb * _MEGABYTE),
        vectors=settings.vector_storage,
        open_limits=OpenLimits(
            descriptors.limit(settings.retriever_open_indexes, "open indexes"),
            settings.retriever_open_mb * _MEGABYTE,
        ),
    )


# The default kind, which no setting chooses.
EDGE = StoreKind("edge", EdgeSettings, lambda _: False, _open, has_vector_storage=True)
