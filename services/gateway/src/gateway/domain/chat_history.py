"""What the gateway speaks of where the history of chats is concerned."""

import base64
import binascii
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec
from servicekit.errors import InvalidRequest

MOST_CONVERSATIONS = 1000
"""That are kept of one user."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """What a list says of a conversation.

    Attributes:
        id: The client's own name for it.
        title: What a list calls it.
        timestamp: When it was last saved, in milliseconds since 1970.
    """

    id: str
    title: str
    timestamp: int


@dataclass(frozen=True, slots=True)
class ConversationPage:
    """Part of a list of conversations.

    Attributes:
        conversations: Those last saved first.
        next_token: Continues the list; empty where it ends.
    """

    conversations: tuple[Conversation, ...]
    next_token: str


def page(conversations: Iterable[Conversation], count: int, token: str) -> ConversationPage:
    """The part of a list that follows a token; one that a conversation joins meanwhile is not turned over.

    Args:
        conversations: All of them, in any order.
        count: Most conversations of the page.
        token: The `next_token` of the page before; empty for the first page.

    Raises:
        InvalidRequest: The token is none.
    """
    ordered = sorted((-each.timestamp, each.id, each) for each in conversations)
    if token:
        after = _place(token)
        ordered = [each for each in ordered if each[:2] > after]
    shown = ordered[:count]
    more = len(ordered) > count
    return ConversationPage(tuple(each for *_, each in shown), _token(*shown[-1][:2]) if more else "")


def _token(timestamp: int, id_: str) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode((timestamp, id_))).decode()


def _place(token: str) -> tuple[int, str]:
    try:
        return msgspec.json.decode(base64.b64decode(token, altchars=b"-_", validate=True), type=tuple[int, str])
    except (binascii.Error, ValueError):
        raise InvalidRequest("Not a token that a list gave.", field="continuationToken") from None
