"""What a kind of vector store registers: its settings, when they choose it, and how it is opened."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import Field
from servicekit.settings import ServiceSettings

from retriever.concurrency.scheduler import Scheduler
from retriever.ports.store import Store


class StoreSettings(ServiceSettings):
    """The settings that every kind of store gets; each kind adds its own in a subclass."""

    data_dir: Path = Field(Path(".data"), description="The store is kept in its subdirectory `retriever`.")


S = TypeVar("S", bound=StoreSettings)


@dataclass(frozen=True, slots=True)
class StoreKind(Generic[S]):
    """A kind of vector store.

    Attributes:
        name: Names it in messages.
        settings: Its settings. They become settings of the retriever, so their names are unique.
        is_chosen: Returns whether the settings choose this kind.
        open: Opens the store. Work that blocks the event loop runs in slices of the scheduler.
    """

    name: str
    settings: type[S]
    is_chosen: Callable[[S], bool]
    open: Callable[[S, Scheduler], Awaitable[Store]]
