"""The aliases of an installation. Each index has an alias that points to its collection.

::

    <prefix>.<tenant>.<index>                        points to the index's own collection
    <prefix>-space.<tenant>.<index>.<incarnation>    points to a collection of many indexes

Each build of an index in a shared collection is an incarnation (`stores.qdrant.incarnation`).

A cluster changes aliases for all nodes together, and applies a list of changes atomically. But a node that has just
started may return old aliases for a moment. Searches read the aliases of one node. Removals and replacements read
the aliases of more than half of the nodes.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from qdrant_client import AsyncQdrantClient, models

from retriever.stores.qdrant.connection import Connection
from retriever.stores.qdrant.node import Read

SPACE = "-space"
"""Follows the prefix in the names of shared collections and of the aliases that point to them."""


class Entry(NamedTuple):
    """The location of an index: its alias and the collection that the alias points to."""

    alias: str
    collection: str


class AliasReply(NamedTuple):
    """The aliases that nodes return.

    Attributes:
        entries: The location of each index by ``<tenant>.<index>``, one mapping for each node.
        names: All aliases that any node returns.
    """

    entries: Sequence[Mapping[str, Entry]]
    names: frozenset[str]

    def locations_of(self, index: str) -> set[Entry | None]:
        """Return the locations of an index. There are several if the nodes differ."""
        return {locations.get(index) for locations in self.entries}


class _Latest:
    """A shared result. One call serves all callers that requested it before the call began."""

    def __init__(self, fetch: Callable[[], Awaitable[AliasReply]]) -> None:
        self._fetch = fetch
        self._reading = asyncio.Lock()
        self._began = 0.0
        self._reply = AliasReply([{}], frozenset())

    async def read(self, oldest: float) -> AliasReply:
        """Return a result whose call began after a time of the monotonic clock."""
        if self._began <= oldest:
            async with self._reading:
                if self._began <= oldest:
                    began = time.monotonic()
                    self._reply = await self._fetch()
                    self._began = began
        return self._reply


class Aliases:
    """Reads the aliases of all indexes in one call for all concurrent callers.

    Args:
        connection: The connection to the server.
        prefix: The prefix of the names of the aliases.
    """

    def __init__(self, connection: Connection, prefix: str) -> None:
        self._connection = connection
        self._prefix = prefix
        self._changed = 0.0
        self._one = _Latest(self._fetch_one)
        self._each = _Latest(self._fetch_each)

    async def read(self, max_age: float = 0.0) -> Mapping[str, Entry]:
        """Return the location of each index by ``<tenant>.<index>``.

        Args:
            max_age: Maximum age of the result in seconds.
        """
        current = await self._one.read(max(time.monotonic() - max_age, self._changed))
        return current.entries[0]

    async def read_each(self) -> AliasReply:
        """Return the aliases of each node that responds. More than half of the nodes must respond.

        Raises:
            DeadlineExceeded, Unavailable: Too few nodes respond.
        """
        return await self._each.read(max(time.monotonic(), self._changed))

    async def change(self, changes: Sequence[models.AliasOperations]) -> None:
        """Apply changes atomically. They may be applied twice.

        Raises:
            Missing, DeadlineExceeded, Unavailable: See `Connection.write`.
        """
        try:
            await self._connection.write(AsyncQdrantClient.update_collection_aliases, changes)
        finally:
            self._changed = time.monotonic()

    def is_shared(self, alias: str) -> bool:
        """Return whether an alias points to a collection of many indexes."""
        return alias.startswith(f"{self._prefix}{SPACE}.")

    def index_of(self, alias: str) -> str | None:
        """Return ``<tenant>.<index>`` of an alias, or None if it belongs to another installation."""
        if self.is_shared(alias):
            return alias.removeprefix(f"{self._prefix}{SPACE}.").rpartition(".")[0]
        return alias.removeprefix(f"{self._prefix}.") if alias.startswith(f"{self._prefix}.") else None

    async def _fetch_one(self) -> AliasReply:
        return self._combined([await self._fetch(self._connection.read)])

    async def _fetch_each(self) -> AliasReply:
        return self._combined(await self._connection.read_each(self._fetch))

    async def _fetch(self, read: Read) -> Sequence[models.AliasDescription]:
        return (await read(AsyncQdrantClient.get_aliases)).aliases

    def _combined(self, replies: Sequence[Sequence[models.AliasDescription]]) -> AliasReply:
        names = frozenset(alias.alias_name for reply in replies for alias in reply)
        return AliasReply([self._entries(reply) for reply in replies], names)

    def _entries(self, aliases: Iterable[models.AliasDescription]) -> Mapping[str, Entry]:
        found: dict[str, Entry] = {}
        # Two concurrent loads of a new index can create two aliases. All processes choose the same one.
        for alias in sorted(aliases, key=lambda alias: (self.is_shared(alias.alias_name), alias.alias_name)):
            index = self.index_of(alias.alias_name)
            if index is not None and (index not in found or not self.is_shared(found[index].alias)):
                found[index] = Entry(alias.alias_name, alias.collection_name)
        return found
