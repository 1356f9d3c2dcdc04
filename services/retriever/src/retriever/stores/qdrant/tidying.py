"""Removes abandoned and replaced collections and incarnations.

A run removes collections and incarnations that have no alias and whose lease has expired. The number of calls does
not grow with the number of indexes: a space needs two calls, and each run checks only some of the other
collections.

A cluster may apply a change of an alias long after the call that requested it. Then an alias can lead to an
incarnation whose points are removed, or are about to be removed. A run then keeps the replaced incarnation, and the
next run points the alias back to it.
"""

import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import structlog
from qdrant_client import AsyncQdrantClient
from servicekit.errors import CausewayError

from retriever.stores.qdrant import schema
from retriever.stores.qdrant.aliases import AliasReply, Entry
from retriever.stores.qdrant.connection import Connection
from retriever.stores.qdrant.failures import Missing
from retriever.stores.qdrant.location import Location
from retriever.stores.qdrant.locations import Locations
from retriever.stores.qdrant.renewals import Renewals
from retriever.stores.qdrant.shared_location import SharedLocation
from retriever.stores.qdrant.space import Space, StoredIncarnation

_log = structlog.get_logger(__name__)

_MAX_REMOVED_POINTS = 20_000
"""Maximum number of points of one incarnation to remove in a run."""
_MAX_CHECKS_PER_RUN = 8
"""Maximum number of unshared collections to check for abandoned marks in a run."""


class TidyResult(NamedTuple):
    """The result of a run.

    Attributes:
        entries: The published indexes.
        to_check: The indexes in separate collections whose marks are checked after this run.
        with_abandoned_marks: The incarnations with expired marks, which a terminated process may have left.
    """

    entries: Sequence[Entry]
    to_check: Sequence[Entry]
    with_abandoned_marks: frozenset[str]


class Tidying:
    """Removes abandoned collections and incarnations.

    Args:
        connection: The connection to the server.
        locations: The locations of the installation.
        prefix: The prefix of all names.
        lease_seconds: Duration of a lease.
    """

    def __init__(self, connection: Connection, locations: Locations, prefix: str, lease_seconds: float) -> None:
        self._connection = connection
        self._locations = locations
        self._prefix = prefix
        self._lease_seconds = lease_seconds
        self._renewals = Renewals(lease_seconds)
        self._without_spec: dict[str, float] = {}
        self._last_checked: str | None = None
        self._empty: Mapping[str, Entry] = {}
        self._incarnations: set[str] = set()

    async def run(self) -> TidyResult:
        """Remove abandoned collections and incarnations. Return which published indexes to check for marks."""
        await self._connection.compare()
        self._incarnations = set()
        abandoned: set[str] = set()
        without_spec: set[str] = set()
        found = (await self._connection.read(AsyncQdrantClient.get_collections)).collections
        aliases = await self._locations.aliases.read_each()
        aliased = {entry.collection for entries in aliases.entries for entry in entries.values()}
        empty: dict[str, Entry] = {}
        # Spaces come first, because they show which indexes are empty.
        for collection in sorted(found, key=lambda collection: not self._locations.is_space(collection.name)):
            alias, _, _ = collection.name.rpartition(".")
            try:
                if self._locations.is_space(collection.name):
                    space = self._locations.space(collection.name)
                    empty |= await self._tidy_space(space, aliases)
                    abandoned |= await space.with_abandoned_marks()
                elif (
                    collection.name not in aliased
                    and alias.startswith(f"{self._prefix}.")
                    and self._locations.aliases.index_of(alias) not in empty
                ):
                    location = self._locations.at(Entry(alias, collection.name))
                    if not await self._tidy(location):
                        without_spec.add(collection.name)
            except Missing:
                continue
        self._empty = empty
        # A later collection of the same name must get its own time to store its specification.
        self._without_spec = {name: seen for name, seen in self._without_spec.items() if name in without_spec}
        self._renewals.retain({collection.name for collection in found} | self._incarnations)
        entries = list(aliases.entries[0].values())
        own = sorted(entry for entry in entries if not self._locations.aliases.is_shared(entry.alias))
        return TidyResult(entries, self._next_to_check(own), frozenset(abandoned))

    def _next_to_check(self, entries: list[Entry]) -> list[Entry]:
        """Return the entries to check in this run: all in the first run, and the next few in each later run."""
        if self._last_checked is None:
            self._last_checked = ""
            return entries
        batch = ([entry for entry in entries if entry.alias > (self._last_checked or "")] + entries)[
            :_MAX_CHECKS_PER_RUN
        ]
        self._last_checked = batch[-1].alias if batch else ""
        return batch

    async def _tidy(self, location: Location) -> bool:
        """Remove a collection if it is abandoned. Return whether it has a specification."""
        until = await location.lease_expiry()
        if until == 0:
            # The collection has no specification yet. Its process is about to write one, or has terminated.
            first_seen = self._without_spec.setdefault(location.name, time.monotonic())
            abandoned = time.monotonic() > first_seen + 2 * self._lease_seconds
        else:
            abandoned = self._renewals.is_abandoned(location.name, until)
        if abandoned:
            _log.info("removing an abandoned collection", collection=location.name)
            self._without_spec.pop(location.name, None)
            await location.remove()
        return until != 0

    async def _tidy_space(self, space: Space, aliases: AliasReply) -> dict[str, Entry]:
        """Remove abandoned incarnations. Return the indexes whose alias leads to no points."""
        await space.adapt_once()
        incarnations = {self._at(space, stored): stored for stored in await space.incarnations()}
        self._incarnations |= {location.alias for location in incarnations}
        complete = {location.alias for location, stored in incarnations.items() if stored.until != schema.CLEARING}
        empty = {
            index: entry
            for entries in aliases.entries
            for index, entry in entries.items()
            if entry.collection == space.name and entry.alias not in complete
        }
        for index, entry in empty.items():
            await self._point_back(index, entry, incarnations)
        published = {entry.alias for entries in aliases.entries for entry in entries.values()}
        for location, stored in incarnations.items():
            is_used = location.alias in published or self._locations.aliases.index_of(location.alias) in empty
            if not is_used and self._renewals.is_abandoned(location.alias, stored.until):
                await self._remove(location, stored, aliases)
        return empty

    async def _remove(self, location: SharedLocation, stored: StoredIncarnation, aliases: AliasReply) -> None:
        await location.adapt()
        if location.alias in aliases.names:
            await location.remove()
        elif await location.begin_clearing(stored.until) and await location.clear(_MAX_REMOVED_POINTS):
            _log.info("removed the points of an index from a shared collection", index=stored.spec.name)

    async def _point_back(
        self, index: str, empty: Entry, incarnations: Mapping[SharedLocation, StoredIncarnation]
    ) -> None:
        """Point an alias that leads to no points back to the incarnation that it led to before.

        The previous run must have found the same alias. So an index that is deleted during a run is not restored.
        """
        now = time.time()
        kept = [
            location
            for location, stored in incarnations.items()
            if self._locations.aliases.index_of(location.alias) == index
            and schema.GIVEN_UP < stored.until < now
            and location.alias != empty.alias
        ]
        if self._empty.get(index) != empty:
            _log.warning("the alias of an index leads to no points", index=index, alias=empty.alias)
        elif len(kept) != 1:
            candidates = [location.alias for location in kept]
            _log.error(
                "the alias of an index leads to no points (docs/qdrant.md)",
                index=index,
                alias=empty.alias,
                collection=empty.collection,
                candidates=candidates,
            )
        else:
            try:
                await kept[0].take_alias_of(empty.alias)
            except CausewayError as error:
                _log.warning("the alias of an index leads to no points", index=index, why=error.message)
            else:
                _log.warning("pointed the alias of an index back to its points", index=index)

    def _at(self, space: Space, stored: StoredIncarnation) -> SharedLocation:
        return self._locations.incarnation(space, stored.spec, stored.incarnation)
