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

        If an earlier acknowledgement was lost and the store has the entry, the call does not write it again.

        Args:
            principal: The owner of the response.
            name: The id of the response.
            entry: The entry to append.
            after: The expected position of the current last entry. 0 means that the log must be empty.
            deadline: The time by which the call must end.

        Raises:
            Conflict: The last entry has another position: another writer is active, or the log was deleted.
            PayloadTooLarge: The entry exceeds the size limit.
            Unavailable: The log cannot be reached. The entry may still be written.
        """
        ...

    async def read(self, principal: Principal, name: str, after: int, deadline: Deadline) -> Sequence[Entry]:
        """Return the next entries after a position, or an empty list at the end. More entries may follow."""
        ...

    async def last(self, principal: Principal, name: str, deadline: Deadline) -> Entry | None:
        """Return the last entry, or None if the log does not exist."""
        ...

    def watch(
        self, principal: Principal, name: str, on_entry: Callable[[Entry], None], deadline: Deadline
    ) -> AbstractAsyncContextManager[None]:
        """Call a function with the entries that writers append while the block runs.

        The function can miss entries. The ``before`` of the next entry shows the gap.

        Raises:
            Unavailable: The log cannot be reached.
        """
        ...

    async def delete(self, principal: Principal, name: str, deadline: Deadline) -> None:
        """Delete a log. Readers receive an entry with ``deleted``, and later writes fail."""
        ...

    async def forget(self, tenant: str, owner: str, deadline: Deadline) -> int:
        """Delete all logs of a user and return their number."""
        ...
