"""The store of responses and conversations, as the gateway uses it."""

from typing import Protocol

from servicekit.deadline import Deadline
from servicekit.principal import Principal

from gateway.domain.responses import Owned, OwnedPage, Stored


class ResponseStore(Protocol):
    """Stores each user's responses and conversations. Beyond a limit, the store deletes a user's oldest objects."""

    async def save(self, principal: Principal, stored: Stored, deadline: Deadline) -> Stored:
        """Store a response or a conversation, replace its previous version, and return it with its revision.

        Raises:
            PayloadTooLarge: The object exceeds the size limit.
        """
        ...

    async def replace(self, principal: Principal, stored: Stored, deadline: Deadline) -> Stored | None:
        """Replace the revision ``stored.revision`` and return the object with its new revision.

        Return None if the stored revision has changed or was deleted.

        Raises:
            PayloadTooLarge: The object exceeds the size limit.
        """
        ...

    async def read(self, principal: Principal, stored_id: str, deadline: Deadline) -> Stored | None:
        """Return the user's response or conversation with this id, or None if it does not exist."""
        ...

    async def delete(self, principal: Principal, stored_id: str, deadline: Deadline) -> bool:
        """Delete a response or a conversation. Return False if it does not exist."""
        ...

    async def forget(self, tenant: str, owner: str, deadline: Deadline) -> int:
        """Delete all responses and conversations of a user and return their number."""
        ...

    async def page(self, tenant: str, count: int, token: str, deadline: Deadline) -> OwnedPage:
        """Return a page of the responses of all users of a tenant, newest first, without conversations.

        A large response may lack its items and the large members of its object.

        Args:
            tenant: The tenant.
            count: The maximum number of responses.
            token: The token of the previous page, or empty for the first page.
            deadline: The time by which the call must end.
        """
        ...

    async def find(self, tenant: str, name: str, deadline: Deadline) -> Owned | None:
        """Return a response of any user of a tenant, in the form of `page`, or None if it does not exist."""
        ...
