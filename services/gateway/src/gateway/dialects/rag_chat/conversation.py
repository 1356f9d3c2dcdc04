"""The conversation of a chat request, shared by the stages of the RAG chat protocol."""

from collections.abc import Mapping, Sequence
from typing import Any

from servicekit.errors import InvalidRequest

from gateway.dialects.json_fields import Fields
from gateway.dialects.rag_chat import json_files
from gateway.domain import Message
from gateway.frontends.profiles import Frontend

READ = ("messages", "input", "context")
"""The members of a body that the gateway parses in all stages. It does not parse the session state."""


def messages(
    body: Fields,
    roles: Sequence[str],
    frontend: Frontend,
    *,
    single_turn: bool = False,
    attached: Mapping[int, Sequence[Message]] | None = None,
    accepts_files: bool = False,
) -> tuple[Message, ...]:
    """Return the messages, oldest first; the last one is the question. Some clients use ``input`` for ``messages``.

    Args:
        body: The members named in `READ`.
        roles: The roles of the dialect.
        frontend: The profile, which limits the number of messages.
        single_turn: Whether the turn has only the last message of the user.
        attached: Messages to insert before a message, by the message's position.
        accepts_files: Whether messages may have files, which the caller reads.

    Raises:
        InvalidRequest: A message is invalid, or ``attached`` has a position without a message. The error names the
            field.
    """
    name = "input" if body.get("messages") is None and body.get("input") is not None else "messages"
    items = body.get(name)
    if isinstance(items, str):
        items = [{"role": "user", "content": items}]
    if not isinstance(items, list) or not items:
        raise body.invalid(name, "must be a non-empty list of messages")
    frontend.check_messages(len(items), name)
    parsed = [_message(item, f"{name}[{at}]", roles, accepts_files=accepts_files) for at, item in enumerate(items)]
    last = len(parsed) - 1
    if single_turn:
        last = max((at for at, message in enumerate(parsed) if message.role == "user"), default=last)
    path = f"{name}[{last}]"
    if parsed[last].role != "user":
        raise InvalidRequest(
            f"{path}.role must be user, because the last message is the question.", field=f"{path}.role"
        )
    if not parsed[last].text.strip():
        raise InvalidRequest(f"{path}.content must not be empty: there is no question.", field=f"{path}.content")
    if single_turn:
        return (parsed[last],)
    inserted = attached or {}
    for at in inserted.keys() - range(len(parsed)):
        raise InvalidRequest(f"The request has files for {name}[{at}], but no such message.", field=f"{name}[{at}]")
    return tuple(item for at, message in enumerate(parsed) for item in (*inserted.get(at, ()), message))


def _message(item: Any, path: str, roles: Sequence[str], *, accepts_files: bool) -> Message:
    if not isinstance(item, dict):
        raise InvalidRequest(f"{path} must be an object.", field=path)
    message = Fields(item, path)
    role = message.text("role")
    if role not in roles:
        raise message.invalid("role", f"must be one of {', '.join(roles)}, not {role[:100]!r}")
    if not accepts_files:
        json_files.refuse(message)
    return Message(role, message.text("content"))
