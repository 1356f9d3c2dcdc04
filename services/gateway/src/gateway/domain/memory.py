"""The stored sessions of clients that send only the newest message."""

import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from gateway.domain.turn import Message

MAX_MESSAGES = 100
"""The maximum number of messages of a session."""
MAX_CHARACTERS = 200_000
"""The maximum number of characters of all messages of a session."""
_NAME = re.compile("[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class StoredSession:
    """A stored session.

    Attributes:
        messages: The messages, oldest first.
        revision: The number of the current revision in the store.
    """

    messages: tuple[Message, ...] = ()
    revision: int = 0


def new_name() -> str:
    """Return a new name of 128 random bits."""
    return secrets.token_hex(16)


def is_name(text: str) -> bool:
    """Return whether a text has the form of a name from `new_name`."""
    return bool(_NAME.fullmatch(text))


def trim_messages(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the latest messages within the limits of a session. The first returned message is a user message.

    The result omits system messages, because each request contains them. It also omits messages that are lists of
    parts, such as messages with pictures.
    """
    latest: list[Message] = []
    remaining_characters = MAX_CHARACTERS
    for message in reversed(messages):
        if message.role == "system" or message.content_json:
            continue
        remaining_characters -= len(message.text)
        if remaining_characters < 0 or len(latest) == MAX_MESSAGES:
            break
        latest.append(Message(message.role, message.text))
    while latest and latest[-1].role != "user":
        latest.pop()
    return tuple(reversed(latest))
