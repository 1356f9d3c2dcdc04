"""Checks access to the source documents of a stored response."""

import asyncio

from servicekit.deadline import Deadline
from servicekit.errors import NotFound
from servicekit.principal import Principal

from gateway.domain.documents import TextRange
from gateway.domain.responses import Stored
from gateway.ports.documents import Catalogue

_MAX_CONCURRENT = 8
_FIRST_CHARACTER = TextRange(1)


class Access:
    """Checks that readers of a response may see its source documents.

    Args:
        catalogue: Reads the documents.
    """

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    async def allows(self, principal: Principal, stored: Stored, deadline: Deadline) -> bool:
        """Return whether a reader may see all source documents of a response. Return False if one was deleted.

        Args:
            principal: The reader.
            stored: The response.
            deadline: The deadline of the checks.
        """
        for begin in range(0, len(stored.sources), _MAX_CONCURRENT):
            batch = stored.sources[begin : begin + _MAX_CONCURRENT]
            if not all(await asyncio.gather(*(self._can_read(principal, *source, deadline) for source in batch))):
                return False
        return True

    async def _can_read(self, principal: Principal, index: str, document_id: str, deadline: Deadline) -> bool:
        try:
            await self._catalogue.read(principal, index, document_id, _FIRST_CHARACTER, deadline)
        except NotFound:
            return False
        return True
