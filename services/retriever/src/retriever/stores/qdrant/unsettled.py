"""Unsettled documents: documents that are being written, or that have stray chunks.

A search sees only the version of an unsettled document that the document's record names. Stray chunks belong to
another version: after a hang, a node can apply a write although the document was replaced meanwhile. If a search
finds a stray chunk, the document of this chunk is suspected for a minute, or until it is settled.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

import structlog

from retriever.domain.document import Document
from retriever.stores import payload
from retriever.stores.qdrant import schema
from retriever.stores.qdrant.points import Points
from retriever.stores.qdrant.renewals import Renewals

_log = structlog.get_logger(__name__)

_FRESH_SECONDS = 0.25  # `Unsettled.refresh` returns the last result for this time
_SUSPECTED_SECONDS = 60.0  # a document is suspected for this time
_MAX_SUSPECTS = 100
_MAX_CLOCK_DIFFERENCE_SECONDS = 5.0  # a larger difference of clocks is logged
_SILENT_SECONDS = 60.0  # minimum time between two such log lines
_MAX_CHECKED_SUSPECTS = 20
"""Maximum number of suspected documents that are checked together."""


class Unsettled:
    """Marked and suspected documents with the generations of their records.

    `refresh` reads them at most every quarter of a second, and at once after `invalidate`.

    Args:
        points: The points of the index.
        records: Returns records by document id.
        lease_seconds: Duration of a lease.

    Attributes:
        known: The result of the last read: the visible generation of each unsettled document, or None if no chunk
            of the document is visible.
    """

    def __init__(
        self,
        points: Points,
        records: Callable[[Sequence[str]], Awaitable[Mapping[str, Document]]],
        lease_seconds: float,
    ) -> None:
        self.known: Mapping[str, int | None] = {}
        self._points = points
        self._records = records
        self._renewals = Renewals(lease_seconds)
        self._lease_seconds = lease_seconds
        self._suspects: dict[str, float] = {}
        self._has_expired_marks = False
        self._silent_until = 0.0
        self._reading = asyncio.Lock()
        self._until = 0.0
        self._changes = 0

    def invalidate(self, document_id: str | None = None) -> None:
        """Make the next `refresh` read again.

        Args:
            document_id: The document of a stray chunk. None: this process has changed a mark or a record, or a
                search has found a removed point.
        """
        self._changes += 1
        self._until = 0.0
        if document_id is not None and len(self._suspects) < _MAX_SUSPECTS:
            self._suspects.setdefault(document_id, time.monotonic() + _SUSPECTED_SECONDS)

    @property
    def may_have_abandoned_work(self) -> bool:
        """Whether a search found stray chunks or an expired mark, which a terminated process may have left."""
        return self._has_expired_marks or bool(self._suspects)

    async def marks(self) -> list[payload.Payload]:
        """Return the payloads of the marks: the document and the time when the mark expires."""
        found = await self._points.payloads_of_any(schema.has_kind(payload.MARK), ["document_id", schema.UNTIL])
        self._check_clocks(found.values())
        for mark in found.values():
            self._renewals.record(mark["document_id"], mark[schema.UNTIL])
        self._renewals.retain({mark["document_id"] for mark in found.values()})
        self._has_expired_marks = any(mark[schema.UNTIL] < time.time() for mark in found.values())
        return list(found.values())

    def _check_clocks(self, marks: Iterable[payload.Payload]) -> None:
        """Log if a mark lasts longer than a lease, because then the clock of its holder is ahead."""
        ahead = max((mark[schema.UNTIL] for mark in marks), default=0.0) - time.time() - self._lease_seconds
        if ahead > _MAX_CLOCK_DIFFERENCE_SECONDS and time.monotonic() > self._silent_until:
            self._silent_until = time.monotonic() + _SILENT_SECONDS
            _log.warning("the clock of another retriever is ahead (docs/qdrant.md)", seconds=round(ahead))

    async def abandoned(self) -> list[str]:
        """Return the ids of documents with an abandoned mark or with stray chunks."""
        abandoned = [
            mark["document_id"]
            for mark in await self.marks()
            if self._renewals.is_abandoned(mark["document_id"], mark[schema.UNTIL])
        ]
        return [*abandoned, *[document_id for document_id in await self._strays() if document_id not in abandoned]]

    async def _strays(self) -> list[str]:
        """Check some suspected documents. Return those with stray chunks, and stop suspecting the others."""
        batch = list(self._suspects)[:_MAX_CHECKED_SUSPECTS]
        records = await self._records(batch) if batch else {}
        found = []
        for document_id in batch:
            keep = records[document_id].generation if document_id in records else None
            if await self._points.payloads_of_any(schema.chunks_of(document_id, keep), fields=()):
                found.append(document_id)
            else:
                self._suspects.pop(document_id, None)
        return found

    async def refresh(self) -> Mapping[str, int | None]:
        """Return the visible generation of each unsettled document. Read them again if the last read is too old."""
        if time.monotonic() >= self._until:
            async with self._reading:
                if time.monotonic() >= self._until:
                    await self._read()
        return self.known

    async def _read(self) -> None:
        began, changes = time.monotonic(), self._changes
        marked = [mark["document_id"] for mark in await self.marks()]
        # A freeze and a rebuild also have marks (`FROZEN`, `REBUILD`), but no chunks.
        marked = [document_id for document_id in marked if not document_id.startswith("\0")]
        now = time.monotonic()
        self._suspects = {document_id: until for document_id, until in self._suspects.items() if until > now}
        marked = list(dict.fromkeys([*marked, *self._suspects]))
        records = await self._records(marked) if marked else {}
        self.known = {
            document_id: records[document_id].generation if document_id in records else None
            for document_id in marked
        }
        if changes == self._changes:
            self._until = began + _FRESH_SECONDS
