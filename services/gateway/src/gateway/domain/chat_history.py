"""The types of the chat history."""

import base64
import binascii
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec
from servicekit.errors import InvalidRequest

MAX_CONVERSATIONS = 1000
"""The maximum number of conversations that are stored for one user."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """The summary of a conversation in a list.

    Attributes:
        id: The client's name for the conversation.
        title: The title in a list.
        timestamp: The time of the last save, in milliseconds since 1970.
    """

    id: str
    title: str
    timestamp: int


@dataclass(frozen=True, slots=True)
class ConversationPage:
    """Part of a list of conversations.

    Attributes:
        conversations: The conversations, most recently saved first.
        next_token: The token of the next page, or empty on the last page.
    """

    conversations: tuple[Conversation, ...]
    next_token: str


def page(conversations: Iterable[Conversation], count: int, token: str) -> ConversationPage:
    """Return the page of a list that follows a token.

    A save between two requests moves the conversation to the top. It may then be missing from the later pages.

    Args:
        conversations: All conversations, in any order.
        count: The maximum number of conversations in the page.
        token: The `next_token` of the previous page, or empty for the first page.

    Raises:
        InvalidRequest: The token is invalid.
    """
    ordered = sorted((-conversation.timestamp, conversation.id, conversation) for conversation in conversations)
    if token:
        after = _position(token)
        ordered = [entry for entry in ordered if entry[:2] > after]
    shown = ordered[:count]
    more = len(ordered) > count
    return ConversationPage(
        tuple(conversation for *_, conversation in shown), _token(*shown[-1][:2]) if more else ""
    )


def _token(timestamp: int, id_: str) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode((timestamp, id_))).decode()


def _position(token: str) -> tuple[int, str]:
    try:
        return msgspec.json.decode(base64.b64decode(token, altchars=b"-_", validate=True), type=tuple[int, str])
    except (binascii.Error, ValueError):
        raise InvalidRequest(
            "continuationToken: the token is invalid. Send the token of the previous page.",
            field="continuationToken",
        ) from None
