"""Marks of documents in one index on a Qdrant server: leases of the processes that write them."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from servicekit import keys
from servicekit.errors import Unavailable

from retriever.domain.document import Document
from retriever.domain.index import IndexSpec
from retriever.ports.store import REBUILD
from retriever.stores import payload
from retriever.stores.qdrant.leases import Lease, Leases
from retriever.stores.qdrant.points import Points

_POLL_SECONDS = 0.05

FROZEN = "\0frozen"
"""The id of the mark that blocks commits of other processes."""


class Marks:
    """The marks that a process takes in an index.

    Args:
        points: The points of the index.
        leases: The leases in the collection.
        spec: The specification of the index.
        records: Returns records by document id.
    """

    def __init__(
        self,
        points: Points,
        leases: Leases,
        spec: IndexSpec,
        records: Callable[[Sequence[str]], Awaitable[Mapping[str, Document]]],
    ) -> None:
        self._points = points
        self._leases = leases
        self._index = spec.name
        self._key = keys.collection(spec.tenant, spec.name)
        self._records = records

    def point_id(self, document_id: str) -> str:
        """Return the id of the point of a document's mark."""
        return str(keys.mark_point_id(self._key, document_id))

    def check(self, document_id: str) -> Lease | None:
        """Return the lease on a document, or None if this process has not marked it.

        Raises:
            Unavailable: Another process may have taken over the lease.
        """
        lease = self._leases.held(self.point_id(document_id))
        if lease is not None:
            lease.check()
        return lease

    async def take(self, document_id: str) -> None:
        """Take the lease on a document.

        Raises:
            Unavailable: Another process writes the document.
        """
        lease = Lease(
            self.point_id(document_id), payload.mark_payload(document_id), (payload.kind(payload.MARK),), 0.0
        )
        with self._points.translated_errors():
            if not await self._leases.take(lease):
                is_index = document_id in (FROZEN, REBUILD)
                what = "The index is being rebuilt" if is_index else f"Document '{document_id}' is being written"
                raise Unavailable(f"{what} by another process.", retry_after=1)
        try:
            record = (await self._records([document_id])).get(document_id)
        except BaseException:
            with self._points.translated_errors():
                await self._leases.give_up(lease.id)
            raise
        lease.generation = record.generation if record else None

    async def give_up(self, document_id: str) -> None:
        """Give up the lease on a document.

        Raises:
            Unavailable: Another process may have taken over the lease.
        """
        self.check(document_id)
        with self._points.translated_errors():
            await self._leases.give_up(self.point_id(document_id))

    async def begin_commit(self, document_id: str) -> Lease | None:
        """Announce that the record of a document is about to change, and check that commits are not blocked.

        Return the renewed lease on the document. If this process has not marked the document, do nothing and return
        None.

        Raises:
            Unavailable: Commits are blocked, or another process has taken over the lease.
        """
        lease = self.check(document_id)
        if lease is None:
            return None
        with self._points.translated_errors():
            if not await self._leases.begin_commit(lease, self.point_id(FROZEN)):
                raise Unavailable(f"Index '{self._index}' is about to be replaced.", retry_after=1)
        return lease

    async def wait_for_commits(self, seconds: float) -> None:
        """Wait until no other process is about to commit.

        Raises:
            TimeoutError: Another process is still about to commit after ``seconds``.
        """
        async with asyncio.timeout(seconds):
            with self._points.translated_errors():
                while await self._leases.others_commit():  # noqa: ASYNC110  # the server has no event for it
                    await asyncio.sleep(_POLL_SECONDS)
