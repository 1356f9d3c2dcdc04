"""Read the originals of documents from their store, and cache them on disk.

The cache is necessary because the store returns only whole originals, while a client requests a document in parts.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import structlog
from servicekit import keys
from servicekit.deadline import Deadline
from servicekit.errors import NotFound, Unavailable
from servicekit.original_store import OriginalStore
from servicekit.principal import Principal

from gateway.clients.file_cache import FileCache
from gateway.clients.nats_calls import call_nats

_TARGET = "The original of the document"
_MAX_CONCURRENT = 8
_REMOVE_SECONDS = 10.0
_log = structlog.get_logger(__name__)


class CachedOriginals:
    """`ports.documents.Originals` over the store of the originals.

    Args:
        store: The store.
        cache: The cache of originals.
    """

    def __init__(self, store: OriginalStore, cache: FileCache) -> None:
        self._store = store
        self._cache = cache

    @asynccontextmanager
    async def open(
        self, principal: Principal, name: str, size_bytes: int, deadline: Deadline
    ) -> AsyncIterator[Path]:
        """See `ports.documents.Originals`."""
        if not name.startswith(keys.originals_of(principal.tenant)):
            raise NotFound("The original of the document is gone.", resource=name)

        async def fetch(path: Path) -> None:
            with path.open("wb") as file:
                # No limit other than the deadline, because the original may be large.
                await call_nats(self._store.read(name, file), deadline, _TARGET, max_seconds=math.inf)

        async with self._cache.file(name, size_bytes, fetch) as path:
            yield path

    async def forget(self, principal: Principal, index: str, names: Sequence[str]) -> None:
        """See `ports.documents.Originals`."""
        remaining = iter([name for name in names if keys.is_original_in(principal.tenant, index, name)])

        async def remove_remaining() -> None:
            for name in remaining:
                await self._remove(name)

        async with asyncio.TaskGroup() as tasks:
            for _ in range(min(len(names), _MAX_CONCURRENT)):
                tasks.create_task(remove_remaining())

    async def _remove(self, name: str) -> None:
        try:
            await call_nats(self._store.remove(name), Deadline.after(_REMOVE_SECONDS), _TARGET)
        except Unavailable as error:
            _log.warning("cannot remove an unused original", name=name, error=error.message)
