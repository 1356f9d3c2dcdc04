"""What the gateway needs of the store of chat histories."""

from typing import Protocol

from servicekit.deadline import Deadline
from servicekit.principal import Principal

from gateway.domain.chat_history import Conversation, ConversationPage


class History(Protocol):
    """Keeps each user's conversations."""

    async def save(
        self, principal: Principal, conversation_id: str, title: str, answers_json: bytes, deadline: Deadline
    ) -> Conversation:
        """Keeps a conversation, in the place of what was kept of it.

        Raises:
            PayloadTooLarge: It is longer than what can be kept.
            Conflict: There are too many.
        """
        ...

    async def read(self, principal: Principal, conversation_id: str, deadline: Deadline) -> bytes:
        """What was said, as it was saved.

        Raises:
            NotFound: No such conversation of this user.
        """
        ...

    async def page(self, principal: Principal, count: int, token: str, deadline: Deadline) -> ConversationPage:
        """A page of the user's conversations.

        Raises:
            InvalidRequest: The token is none that a page had.
        """
        ...

    async def delete(self, principal: Principal, conversation_id: str, deadline: Deadline) -> None:
        """Forgets a conversation.

        Raises:
            NotFound: No such conversation of this user.
        """
        ...

    async def forget(self, tenant: str, owner: str, deadline: Deadline) -> int:
        """Delete all conversations of a user; return how many there were."""
        ...
