"""Originals of documents from the object store, through a cache on the disk.

The store gives objects whole or not at all; who reads a document asks for its parts one after the other.
"""

import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from nats.js.errors import ObjectNotFoundError
from servicekit import keys
from servicekit.deadline import Deadline
from servicekit.errors import NotFound
from servicekit.nats import IngestTransport
from servicekit.principal import Principal

from gateway.clients.calls import reached
from gateway.file_cache import FileCache

_WHAT = "The original of the document"


class NatsOriginals:
    """`ports.Originals` over the object store.

    Args:
        transport: Gives the object store; raises `Unavailable` while NATS is away.
        cache: Keeps what was read.
    """

    def __init__(self, transport: Callable[[], Awaitable[IngestTransport]], cache: FileCache) -> None:
        self._transport = transport
        self._cache = cache

    @asynccontextmanager
    async def open(
        self, principal: Principal, sha256: str, size_bytes: int, deadline: Deadline
    ) -> AsyncIterator[Path]:
        """See `ports.Originals`."""
        name = keys.original_object(principal.tenant, sha256)

        async def fetch(path: Path) -> None:
            store = (await self._transport()).originals
            with path.open("wb") as file:
                # Never into memory, and never without an end: who reads an object while another upload of the same
                # content replaces it waits for ever.
                reading = reached(store.get(name, writeinto=file), deadline, _WHAT, at_most=math.inf)
                try:
                    await reading
                except ObjectNotFoundError as error:
                    raise NotFound("The original of the document is gone.", resource=sha256) from error

        async with self._cache.file(name, size_bytes, fetch) as path:
            yield path
