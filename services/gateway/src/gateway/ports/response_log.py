"""What the gateway needs of the logs of responses."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from servicekit.deadline import Deadline
from servicekit.principal import Principal

from gateway.domain.response_log import Entry


class ResponseLog(Protocol):
    """Keeps a log of each stored response. An entry that was written is neither changed nor moved."""

    async def append(self, principal: Principal, name: str, entry: Entry, after: int, deadline: Deadline) -> int:
        """Write an entry behind the last one, and return its position. It is there for readers afterwards.

        What was written although nothing said so is recognised and not written twice.

        Args:
            principal: Whose response it is.
            name: Id of the response.
            entry: What is written.
            after: Position of the entry that must be the last one; 0: there must be none.
            deadline: When it must be over.

        Raises:
            Conflict: Another entry is the last one: another writer is active, or the log was deleted.
            PayloadTooLarge: It is larger than what can be kept.
            Unavailable: The log cannot be reached. The entry may still get there.
        """
        ...

    async def read(self, principal: Principal, name: str, after: int, deadline: Deadline) -> Sequence[Entry]:
        """Return the next entries behind a position; none where there are no more now. There may be more."""
        ...

    async def last(self, principal: Principal, name: str, deadline: Deadline) -> Entry | None:
        """Return the last entry; None where there is no log."""
        ...

    def watch(
        self, principal: Principal, name: str, heard: Callable[[Entry], None], deadline: Deadline
    ) -> AbstractAsyncContextManager[None]:
        """Call a function with each entry that is written while the block runs.

        Entries may be missed; ``before`` of the next one tells it.

        Raises:
            Unavailable: The log cannot be reached.
        """
        ...

    async def delete(self, principal: Principal, name: str, deadline: Deadline) -> None:
        """Delete a log, to which nothing can be written afterwards. Readers get an entry that says so."""
        ...

    async def forget(self, tenant: str, owner: str, deadline: Deadline) -> int:
        """Delete all logs of a user; return how many there were."""
        ...
