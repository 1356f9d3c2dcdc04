"""What the gateway needs of the store of responses and conversations."""

from typing import Protocol

from servicekit.deadline import Deadline
from servicekit.principal import Principal

from gateway.domain.responses import Owned, OwnedPage, Stored


class ResponseStore(Protocol):
    """Keeps each user's responses and conversations. Where there are too many of a user, the oldest go."""

    async def save(self, principal: Principal, stored: Stored, deadline: Deadline) -> Stored:
        """Keep it under its id, in the place of what was there; return it with its revision.

        Raises:
            PayloadTooLarge: It is larger than what can be kept.
        """
        ...

    async def replace(self, principal: Principal, stored: Stored, deadline: Deadline) -> Stored | None:
        """Keep it in the place of its revision; return it with its new one, None where that has changed or is gone.

        Raises:
            PayloadTooLarge: It is larger than what can be kept.
        """
        ...

    async def read(self, principal: Principal, stored_id: str, deadline: Deadline) -> Stored | None:
        """Return what this user has under an id; None where that is nothing."""
        ...

    async def delete(self, principal: Principal, stored_id: str, deadline: Deadline) -> bool:
        """Delete it; False where there was nothing."""
        ...

    async def forget(self, tenant: str, owner: str, deadline: Deadline) -> int:
        """Delete everything of a user; return how much that was."""
        ...

    async def page(self, tenant: str, count: int, token: str, deadline: Deadline) -> OwnedPage:
        """Return responses of all users of a tenant, the newest first; no conversations.

        A large one may lack its items and the large members of its object.

        Args:
            tenant: Whose they are.
            count: Most of them.
            token: Of the page before; empty: the page is the first one.
            deadline: When it must be over.
        """
        ...

    async def find(self, tenant: str, name: str, deadline: Deadline) -> Owned | None:
        """Return a response of any user of a tenant, as `page` does; None where the tenant has none of this id."""
        ...
