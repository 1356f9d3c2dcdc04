"""Whether a reader may see what a stored response rests on."""

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
    """Asks for the documents that a response rests on.

    Args:
        catalogue: Has the documents.
    """

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    async def allows(self, principal: Principal, stored: Stored, deadline: Deadline) -> bool:
        """Return whether a reader sees all documents that a response rests on.

        Args:
            principal: Who reads.
            stored: The response.
            deadline: When it must be over.
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
