"""What the gateway needs of the store of sessions."""

from typing import Protocol

from servicekit.deadline import Deadline
from servicekit.principal import Principal

from gateway.domain.memory import Remembered
from gateway.domain.turn import Message


class Memory(Protocol):
    """Keeps sessions: what one caller and one front end said, under a name that the gateway gave."""

    async def begin(self, principal: Principal, profile: str, name: str, deadline: Deadline) -> Remembered:
        """Keeps an empty session under a new name."""
        ...

    async def read(self, principal: Principal, profile: str, name: str, deadline: Deadline) -> Remembered | None:
        """The session of this name that the caller has with the front end; None for an unknown name."""
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
        """Keeps these messages in the place of those of a revision; False where that has changed or is gone."""
        ...

    async def forget(self, principal: Principal, profile: str, name: str, deadline: Deadline) -> bool:
        """Forgets a session; False for an unknown name."""
        ...

    async def forget_user(self, tenant: str, owner: str, deadline: Deadline) -> int:
        """Delete all sessions of a user; return how many there were."""
        ...
