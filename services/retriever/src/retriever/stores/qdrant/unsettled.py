"""Which documents of an index are being written, as a search has to know it."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

from retriever.domain.document import Document

_FRESH_SECONDS = 0.25


class Unsettled:
    """Marked documents, each with the generation that its record names; read at most every quarter of a second.

    Args:
        marked: Returns the ids of the marked documents.
        records: Returns records by document id.

    Attributes:
        known: The documents, as they were read last.
    """

    def __init__(
        self,
        marked: Callable[[], Awaitable[Sequence[str]]],
        records: Callable[[Sequence[str]], Awaitable[Mapping[str, Document]]],
    ) -> None:
        self.known: Mapping[str, int | None] = {}
        self._marked = marked
        self._records = records
        self._reading = asyncio.Lock()
        self._until = 0.0
        self._changes = 0

    def changed(self) -> None:
        """Have the next `refresh` read, because this process has changed a mark or a record."""
        self._changes += 1
        self._until = 0.0

    async def refresh(self) -> Mapping[str, int | None]:
        """Return the documents, read anew where the last reading is too old."""
        if time.monotonic() >= self._until:
            async with self._reading:
                if time.monotonic() >= self._until:
                    await self._read()
        return self.known

    async def _read(self) -> None:
        began, changes = time.monotonic(), self._changes
        marked = [each for each in await self._marked() if not each.startswith("\0")]
        records = await self._records(marked) if marked else {}
        self.known = {each: records[each].generation if each in records else None for each in marked}
        if changes == self._changes:
            self._until = began + _FRESH_SECONDS
