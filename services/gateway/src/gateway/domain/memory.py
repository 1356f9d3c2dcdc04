"""What a gateway remembers of a session, for clients that send the newest message alone."""

import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from gateway.domain.turn import Message

MOST_MESSAGES = 100
MOST_CHARACTERS = 200_000
_NAME = re.compile("[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class Remembered:
    """A session as it was kept.

    Attributes:
        messages: What was said, oldest first.
        revision: Which change of it this is.
    """

    messages: tuple[Message, ...] = ()
    revision: int = 0


def new_name() -> str:
    """Return a name of 128 random bits that has not been given before."""
    return secrets.token_hex(16)


def is_name(text: str) -> bool:
    """Return whether a text can be a name that a gateway has given."""
    return bool(_NAME.fullmatch(text))


def bounded(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the latest messages, within the bounds of what is kept; the first of them is the user's.

    The system's messages come with each request, and pictures are not kept.
    """
    kept: list[Message] = []
    room = MOST_CHARACTERS
    for message in reversed(messages):
        if message.role == "system" or message.content_json:
            continue
        room -= len(message.text)
        if room < 0 or len(kept) == MOST_MESSAGES:
            break
        kept.append(Message(message.role, message.text))
    while kept and kept[-1].role != "user":
        kept.pop()
    return tuple(reversed(kept))
