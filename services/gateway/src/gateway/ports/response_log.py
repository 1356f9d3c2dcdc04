"""The logs of responses, as the gateway uses them."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from servicekit.deadline import Deadline
from servicekit.principal import Principal

from gateway.domain.response_log import Entry


class ResponseLog(Protocol):
    """Stores a log for each stored response. A written entry never changes."""

    async def append(self, principal: Principal, name: str, entry: Entry, after: int, deadline: Deadline) -> int:
        """Append an entry and return its position. Readers see the entry when this call returns.

        If the store has the entry already, because an earlier acknowledgement was lost, it is not written again.

        Args:
            principal: The owner of the response.
            name: The id of the response.
            entry: The entry to append.
            after: The expected position of the current last entry; 0: the log must be empty.
            deadline: When the call must end.

        Raises:
            Conflict: The last entry has another position: another writer is active, or the log was deleted.
            PayloadTooLarge: The entry exceeds the size limit.
            Unavailable: The log cannot be reached. The entry may still be written.
        """
        ...

    async def read(self, principal: Principal, name: str, after: int, deadline: Deadline) -> Sequence[Entry]:
        """Return the next entries after a position, or an empty list at the end. More entries may follow them."""
        ...

    async def last(self, principal: Principal, name: str, deadline: Deadline) -> Entry | None:
        """Return the last entry, or None if the log does not exist."""
        ...

    def watch(
        self, principal: Principal, name: str, heard: Callable[[Entry], None], deadline: Deadline
    ) -> AbstractAsyncContextManager[None]:
        """Call a function with each entry that is written while the block runs.

        Entries may be missed. The ``before`` of the next entry shows this.

        Raises:
            Unavailable: The log cannot be reached.
        """
        ...

    async def delete(self, principal: Principal, name: str, deadline: Deadline) -> None:
        """Delete a log. Readers get an entry with ``deleted``; later writes fail."""
        ...

    async def forget(self, tenant: str, owner: str, deadline: Deadline) -> int:
        """Delete all logs of a user; return how many there were."""
        ...
