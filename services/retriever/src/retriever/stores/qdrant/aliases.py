"""The aliases of an installation, which tell where each index is.

::

    <prefix>.<tenant>.<index>                        leads to a collection of the index's own
    <prefix>-space.<tenant>.<index>.<incarnation>    leads to a collection of many indexes

A cluster decides on aliases once, for all nodes. A list of changes is made as a whole.
"""

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from qdrant_client import AsyncQdrantClient, models

from retriever.stores.qdrant.connection import Connection

SPACE = "-space"
"""Follows the prefix in names of what belongs to many indexes."""


class Entry(NamedTuple):
    """Where an index is: the alias, and the collection that it leads to."""

    alias: str
    collection: str


class Aliases:
    """Reads the aliases of all indexes in one call, however many ask.

    Args:
        connection: To the server.
        prefix: Begins their names.

    Attributes:
        names: All aliases of the server, as they were read last.
    """

    def __init__(self, connection: Connection, prefix: str) -> None:
        self._connection = connection
        self._prefix = prefix
        self._reading = asyncio.Lock()
        self._known: Mapping[str, Entry] = {}
        self.names: frozenset[str] = frozenset()
        self._began = self._changed = 0.0

    async def read(self, max_age: float = 0.0) -> Mapping[str, Entry]:
        """Return where each index is, by ``<tenant>.<index>``.

        Args:
            max_age: Of the answer in seconds.
        """
        oldest = time.monotonic() - max_age
        if self._began <= max(oldest, self._changed):
            async with self._reading:
                if self._began <= max(oldest, self._changed):  # nobody has begun to read since this call
                    began = time.monotonic()
                    told = (await self._connection.read(AsyncQdrantClient.get_aliases)).aliases
                    self._known, self.names = self._told(told), frozenset(each.alias_name for each in told)
                    self._began = began
        return self._known

    async def change(self, changes: Sequence[models.AliasOperations]) -> None:
        """Make changes, all or none of them.

        Raises:
            Missing, DeadlineExceeded, Unavailable: See `Connection.write_once`.
        """
        try:
            await self._connection.write_once(AsyncQdrantClient.update_collection_aliases, changes)
        finally:
            self._changed = time.monotonic()

    def is_shared(self, alias: str) -> bool:
        """Whether an alias leads to a collection of many indexes."""
        return alias.startswith(f"{self._prefix}{SPACE}.")

    def index_of(self, alias: str) -> str | None:
        """Return ``<tenant>.<index>`` of an alias; None where it is another installation's."""
        if self.is_shared(alias):
            return alias.removeprefix(f"{self._prefix}{SPACE}.").rpartition(".")[0]
        return alias.removeprefix(f"{self._prefix}.") if alias.startswith(f"{self._prefix}.") else None

    def _told(self, aliases: Iterable[models.AliasDescription]) -> Mapping[str, Entry]:
        found: dict[str, Entry] = {}
        # Two loads of an index that was not there can make two aliases: all processes take the same one.
        for each in sorted(aliases, key=lambda each: (self.is_shared(each.alias_name), each.alias_name)):
            index = self.index_of(each.alias_name)
            if index is not None and (index not in found or not self.is_shared(found[index].alias)):
                found[index] = Entry(each.alias_name, each.collection_name)
        return found
