"""The store of chat histories."""

from typing import Protocol

from servicekit.deadline import Deadline
from servicekit.principal import Principal

from gateway.domain.chat_history import Conversation, ConversationPage


class History(Protocol):
    """Stores each user's conversations."""

    async def save(
        self, principal: Principal, conversation_id: str, title: str, answers_json: bytes, deadline: Deadline
    ) -> Conversation:
        """Store a conversation and replace its previous version.

        Raises:
            PayloadTooLarge: The conversation is too long.
            Conflict: The user has the maximum number of conversations.
        """
        ...

    async def read(self, principal: Principal, conversation_id: str, deadline: Deadline) -> bytes:
        """Return the saved messages, unchanged.

        Raises:
            NotFound: The user has no such conversation.
        """
        ...

    async def page(self, principal: Principal, count: int, token: str, deadline: Deadline) -> ConversationPage:
        """Return a page of the user's conversations.

        Raises:
            InvalidRequest: The token is invalid.
        """
        ...

    async def delete(self, principal: Principal, conversation_id: str, deadline: Deadline) -> None:
        """Delete a conversation.

        Raises:
            NotFound: The user has no such conversation.
        """
        ...

    async def forget(self, tenant: str, owner: str, deadline: Deadline) -> int:
        """Delete all conversations of a user and return their number."""
        ...
