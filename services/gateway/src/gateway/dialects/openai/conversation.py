"""Reads and validates the messages of an OpenAI request, and splits them into question and history."""

import itertools
from collections.abc import Sequence

import msgspec
from servicekit.errors import InvalidRequest

from gateway.answering.json_texts import repeats_names
from gateway.dialects import json_fields
from gateway.domain import PART_BREAK, Message

Raw = dict[str, msgspec.Raw]

_SEARCHABLE_ROLES = ("system", "user", "assistant", "developer")
_KNOWN_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
"""The roles of OpenAI's protocol. If a policy applies, the gateway refuses other roles, because each model server
interprets them in its own way."""

_JUDGED_ROLES = ("user", "tool", "function")
"""The roles whose messages all detectors judge. The detectors of a policy judge the messages of all roles."""

_INVALID_FORMAT = "Invalid request format"
_messages_decoder = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])


class UnknownRole(InvalidRequest):
    """A policy applies, and a message has a role outside OpenAI's protocol. The status is 400 in each dialect."""


def messages(raw: Raw) -> list[Message]:
    """Return the messages of a request.

    Raises:
        InvalidRequest: A message is invalid; the error names its path.
    """
    try:
        items = _messages_decoder.decode(raw.get("messages", b"null"))
    except (ValueError, RecursionError):
        items = []
    if not items:
        raise InvalidRequest(f"{_INVALID_FORMAT}: messages must be a non-empty list of objects.", field="messages")
    return [_message(item, f"messages[{at}]") for at, item in enumerate(items)]


def _message(item: Raw, path: str) -> Message:
    role = json_fields.value(item.get("role"), f"{path}.role")
    if not isinstance(role, str) or not role:
        raise InvalidRequest(f"{_INVALID_FORMAT}: messages must contain 'role'.", field=f"{path}.role")
    field = f"{path}.content"
    content = json_fields.value(item.get("content"), field)
    if content is None and role != "assistant":
        raise InvalidRequest(f"{_INVALID_FORMAT}: messages must contain 'content' for role '{role}'.", field=field)
    if content is not None and not isinstance(content, str | list):
        raise InvalidRequest(f"{_INVALID_FORMAT}: 'content' must be a string or a list of parts.", field=field)
    if role == "user" and not content:
        raise InvalidRequest(f"{_INVALID_FORMAT}: user messages must contain 'content'.", field=field)
    for name in item:
        json_fields.value(item[name], f"{path}.{name}")
    extra = json_fields.without(item, ("role", "content"))
    extra = b"" if extra == b"{}" else extra
    if isinstance(content, list):
        texts = [part["text"] for part in content if _is_text(part)]
        if len(texts) < len(content):
            return Message(role, "", bytes(item["content"]), extra)
        return Message(role, "\n".join(texts), b"", extra, _line_breaks(texts))
    return Message(role, content or "", b"", extra)


def _line_breaks(texts: Sequence[str]) -> tuple[int, ...]:
    """Return the positions of the line breaks that join these texts."""
    ends = list(itertools.accumulate(map(len, texts)))[:-1]
    return tuple(end + at for at, end in enumerate(ends))


def _is_text(part: object) -> bool:
    return isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)


def searchable(message: Message) -> bool:
    """Return whether RAGEngine's search algorithm supports the role and the content of a message."""
    return message.role in _SEARCHABLE_ROLES and not (message.role == "user" and message.content_json)


def split(messages: list[Message]) -> tuple[list[int], list[int]]:
    """Return the positions of the question (the user's messages after the last answer) and of the other messages.

    Raises:
        InvalidRequest: No user message with text follows the last answer.
    """
    last_answer = max((at for at, message in enumerate(messages) if message.role == "assistant"), default=-1)
    questions = [at for at, message in enumerate(messages) if at > last_answer and message.role == "user"]
    if not any(messages[at].text.strip() for at in questions):
        raise InvalidRequest("There must be a user prompt since the latest assistant message.", field="messages")
    return questions, [at for at, message in enumerate(messages) if at <= last_answer or message.role != "user"]


def common_extra(questions: list[Message]) -> bytes:
    """Return the `extra_json` that all these messages share, or empty bytes if the messages differ in it."""
    first = questions[0].extra_json
    return first if all(message.extra_json == first for message in questions) else b""


def gaps(question: Sequence[Message]) -> tuple[int, ...]:
    """Return the `gaps` of the messages as positions in the question, which joins their texts with `PART_BREAK`."""
    positions: list[int] = []
    begin = 0
    for message in question:
        positions += [begin + gap for gap in message.gaps]
        begin += len(message.text) + len(PART_BREAK)
    return tuple(positions)


def check_names(body: bytes) -> None:
    """Check that no JSON object has a duplicate name. Detectors would judge only one of its values.

    Raises:
        InvalidRequest: An object has a duplicate name.
    """
    if repeats_names(body):
        raise InvalidRequest("The body has an object with a duplicate name. Send each name once.", field="body")


def check_readable(messages: list[Message], *, has_policy: bool) -> None:
    """Check that detectors can read the messages.

    Args:
        messages: All messages.
        has_policy: Whether a policy applies. The detectors of a policy judge the messages of all roles.

    Raises:
        InvalidRequest: A message has parts other than text, or an unknown role.
    """
    for at, message in enumerate(messages):
        if has_policy and message.role not in _KNOWN_ROLES:
            raise UnknownRole(
                f"messages[{at}].role must be one of {', '.join(_KNOWN_ROLES)}, not {message.role[:100]!r}.",
                field=f"messages[{at}].role",
            )
        if message.content_json and (has_policy or message.role in _JUDGED_ROLES):
            raise InvalidRequest(
                f"messages[{at}].content has parts other than text. Send only text, because detectors judge it.",
                field=f"messages[{at}].content",
            )
