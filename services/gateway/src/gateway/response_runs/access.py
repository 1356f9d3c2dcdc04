"""Checks access to the documents that a stored response uses."""

import asyncio

from servicekit.deadline import Deadline
from servicekit.errors import NotFound
from servicekit.principal import Principal

from gateway.domain.documents import TextRange
from gateway.domain.responses import Stored
from gateway.ports.documents import Catalogue

_AT_ONCE = 8
_FIRST = TextRange(1)


class Access:
    """Checks access to the source documents of a response.

    Args:
        catalogue: Reads the documents.
    """

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    async def allows(self, principal: Principal, stored: Stored, deadline: Deadline) -> bool:
        """Return whether a reader may see all source documents of a response.

        Args:
            principal: The reader.
            stored: The response.
            deadline: The deadline of the checks.
        """
        for begin in range(0, len(stored.sources), _AT_ONCE):
            some = stored.sources[begin : begin + _AT_ONCE]
            if not all(await asyncio.gather(*(self._sees(principal, *each, deadline) for each in some))):
                return False
        return True

    async def _sees(self, principal: Principal, index: str, document_id: str, deadline: Deadline) -> bool:
        try:
            await self._catalogue.read(principal, index, document_id, _FIRST, deadline)
        except NotFound:
            return False
        return True
