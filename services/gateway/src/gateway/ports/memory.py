"""The store of sessions."""

from typing import Protocol

from servicekit.deadline import Deadline
from servicekit.principal import Principal

from gateway.domain.memory import StoredSession
from gateway.domain.turn import Message


class Memory(Protocol):
    """Stores sessions. A session contains messages of one caller with one front end, under a generated name."""

    async def begin(self, principal: Principal, profile: str, name: str, deadline: Deadline) -> StoredSession:
        """Store an empty session under a new name."""
        ...

    async def read(self, principal: Principal, profile: str, name: str, deadline: Deadline) -> StoredSession | None:
        """Return the caller's session of this name with the front end, or None for an unknown name."""
        ...

    async def replace(
        self,
        principal: Principal,
        profile: str,
        name: str,
        messages: tuple[Message, ...],
        revision: int,
        deadline: Deadline,
    ) -> bool:
        """Replace the messages of a revision. Return False if the session has changed or does not exist."""
        ...

    async def delete(self, principal: Principal, profile: str, name: str, deadline: Deadline) -> bool:
        """Delete a session. Return False for an unknown name."""
        ...

    async def forget(self, tenant: str, owner: str, deadline: Deadline) -> int:
        """Delete all sessions of a user and return their number."""
        ...
