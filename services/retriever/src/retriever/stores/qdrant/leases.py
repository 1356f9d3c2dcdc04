"""Leases on a Qdrant server: locks between processes.

A lease is a point with its holder and its expiry. A process takes a lease by a conditional write: the server
changes the point only if the process holds the lease already or the lease has expired. The process then reads the
point back. The holder renews the lease long before it expires. The lease of a terminated process expires, and
another process takes it over. The clocks of the processes must agree within a few seconds, as NTP ensures.
"""

import asyncio
import contextlib
import time
from collections.abc import Iterable
from dataclasses import dataclass

import structlog
from qdrant_client import AsyncQdrantClient, models
from servicekit.errors import CausewayError, DeadlineExceeded, Unavailable

from retriever.concurrency.gathering import gather_all
from retriever.stores import payload
from retriever.stores.qdrant import schema
from retriever.stores.qdrant.connection import Calls
from retriever.stores.qdrant.copies import Copies
from retriever.stores.qdrant.failures import Missing
from retriever.stores.qdrant.layout import ORDERING

_log = structlog.get_logger(__name__)

SECONDS = 30.0
"""Duration of a lease without renewal."""


@dataclass
class Lease:
    """A lease that this process holds, takes or has lost.

    Attributes:
        id: The id of the point.
        content: The payload of the point, except the holder, the expiry and the facts.
        facts: The facts of the point for filters.
        until: The time on the monotonic clock until which no other process can hold the lease. 0: not held.
        generation: For a mark: the generation in the document's record that this process read or wrote last.
        committing: For a mark: whether this process has begun to change the record. It remains True until the lease
            is given up.
    """

    id: str
    content: payload.Payload
    facts: tuple[str, ...]
    until: float
    generation: int | None = None
    committing: bool = False

    @property
    def is_held(self) -> bool:
        """Whether no other process can hold the lease yet."""
        return time.monotonic() < self.until

    def check(self) -> None:
        """Raise Unavailable if another process may hold the lease by now."""
        if not self.is_held:
            raise Unavailable("Another process may have taken over this write.")


class Leases:
    """The leases that a process holds in one collection.

    Args:
        calls: Calls the server.
        copies: Reads the collection's points.
        collection: Name of the collection on the server.
        holder: Name of this process.
        seconds: Duration of a lease in seconds.

    Attributes:
        seconds: Duration of a lease in seconds.
    """

    def __init__(
        self, calls: Calls, copies: Copies, collection: str, holder: str, seconds: float = SECONDS
    ) -> None:
        self._calls = calls
        self._copies = copies
        self._collection = collection
        self.holder = holder
        self.seconds = seconds
        self._held: dict[str, Lease] = {}
        self._renewing = asyncio.Lock()

    def held(self, id_: str) -> Lease | None:
        """Return the lease with this id if this process holds it."""
        return self._held.get(id_)

    def __bool__(self) -> bool:
        """Return whether this process holds a lease."""
        return bool(self._held)

    async def take(self, lease: Lease) -> bool:
        """Take a free or expired lease. Return whether this process holds it now.

        Raises:
            Missing: The collection does not exist.
            DeadlineExceeded, Unavailable: The server does not respond.
        """
        began, until = time.monotonic(), self._expiry()
        # The read below shows whether the write was applied.
        with contextlib.suppress(DeadlineExceeded, Unavailable):
            await self._write(
                [lease], schema.available_to(self.holder, time.time()), until, models.UpdateMode.UPSERT
            )
        lease.until = began + self.seconds * 0.8  # the remaining time allows for clocks that differ
        if lease.id not in await self._held_ids([lease.id], until):
            return False
        self._held[lease.id] = lease
        return True

    async def begin_commit(self, lease: Lease, blocking_id: str) -> bool:
        """Renew a lease before a commit and mark it as committing. Return whether commits are allowed.

        Commits are allowed if no other process holds the lease ``blocking_id``.

        Args:
            lease: A held lease.
            blocking_id: Id of the lease that blocks commits. Either its new holder sees that this lease is
                committing, or this call sees the new holder.

        Raises:
            Unavailable: Another process has taken the lease over.
        """
        lease.committing = True
        await self._renew([lease])
        lease.check()
        found = await self._read([blocking_id], ["holder", schema.UNTIL])
        now = time.time()
        return not any(
            content["holder"] != self.holder and content[schema.UNTIL] >= now for content in found.values()
        )

    async def others_commit(self) -> bool:
        """Return whether another process has passed `begin_commit` and is about to commit."""
        found = await self._copies.payloads_of_any(schema.has_facts(schema.COMMITTING), ["holder", schema.UNTIL])
        now = time.time()
        return any(content["holder"] != self.holder and content[schema.UNTIL] >= now for content in found.values())

    async def give_up(self, id_: str) -> None:
        """Remove a lease if no other process holds it."""
        async with self._renewing:
            self._held.pop(id_, None)
        own = models.Filter(
            must=[models.HasIdCondition(has_id=[id_]), schema.available_to(self.holder, time.time())]
        )
        await self._calls.write(
            AsyncQdrantClient.delete,
            self._collection,
            models.FilterSelector(filter=own),
            wait=True,
            ordering=ORDERING,
        )

    def forget(self, id_: str) -> None:
        """Stop renewing a lease. Its point remains."""
        self._held.pop(id_, None)

    async def expire_all(self) -> None:
        """Give up all held leases at once. Their points remain, and another process settles the unfinished work."""
        leases = [lease for lease in self._held.values() if lease.until]
        self._held.clear()
        if leases:
            own = schema.has_facts(schema.holder_fact(self.holder))
            await self._write(leases, own, schema.GIVEN_UP, models.UpdateMode.UPDATE_ONLY)

    async def renew(self) -> None:
        """Renew all held leases. Leases that another process has taken over become invalid."""
        await self._renew([lease for lease in self._held.values() if lease.until])

    async def _renew(self, leases: list[Lease]) -> None:
        async with self._renewing:
            began, until = time.monotonic(), self._expiry()
            # Do not restore leases that were given up meanwhile.
            held = [lease for lease in leases if self._held.get(lease.id) is lease]
            if not held:
                return  # the server refuses a write of no points
            holder = schema.has_facts(schema.holder_fact(self.holder))
            with contextlib.suppress(DeadlineExceeded, Unavailable):
                # A lease that another process took over and gave up again must remain lost.
                await self._write(held, holder, until, models.UpdateMode.UPDATE_ONLY)
            renewed = await self._held_ids([lease.id for lease in held], until)
            for lease in held:
                if lease.id in renewed:
                    lease.until = began + self.seconds * 0.8
                elif self._held.get(lease.id) is lease:
                    _log.warning("a lease was lost", collection=self._collection)
                    lease.until = 0.0  # the lease is kept, so that `Lease.check` raises

    async def _write(
        self, leases: Iterable[Lease], condition: models.Filter, until: float, mode: models.UpdateMode
    ) -> None:
        await self._calls.write(
            AsyncQdrantClient.upsert,
            self._collection,
            [
                schema.lease_point(
                    lease.id, lease.content, lease.facts, self.holder, until, committing=lease.committing
                )
                for lease in leases
            ],
            wait=True,
            ordering=ORDERING,
            update_filter=condition,
            update_mode=mode,
        )

    def _expiry(self) -> float:
        """Return the expiry of a lease that is taken now, as a Unix time."""
        return time.time() + self.seconds

    async def _held_ids(self, ids: list[str], until: float) -> set[str]:
        """Return the ids of leases that this process holds at least until that time."""
        found = await self._read(ids, ["holder", schema.UNTIL])
        return {
            id_
            for id_, content in found.items()
            if content["holder"] == self.holder and content[schema.UNTIL] >= until
        }

    async def _read(self, ids: list[str], fields: list[str]) -> dict[str, payload.Payload]:
        found = await self._copies.retrieve(ids, fields)
        return {id_: point.payload or {} for id_, point in found.items()}


async def renew_all(leases: Iterable[Leases]) -> None:
    """Renew leases. A failed renewal is repeated at the next interval.

    The collections do not wait for each other: while a node of a cluster hangs, the first write of each collection
    may take most of the time of a lease.
    """
    await gather_all(*[_renewed(collection_leases) for collection_leases in leases if collection_leases])


async def _renewed(leases: Leases) -> None:
    try:
        await leases.renew()
    except (CausewayError, Missing) as error:
        _log.warning("leases not renewed", why=str(error))
