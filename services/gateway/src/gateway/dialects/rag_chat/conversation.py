"""The conversation of a chat request, shared by the stages of the RAG chat protocol."""

from collections.abc import Mapping, Sequence
from typing import Any

from servicekit.errors import InvalidRequest

from gateway.dialects.json_fields import Fields
from gateway.dialects.rag_chat import json_files
from gateway.domain import Message
from gateway.frontends.profiles import Frontend

READ = ("messages", "input", "context")
"""The members of a body that all stages share, except the session state, which is not read."""


def messages(
    body: Fields,
    roles: Sequence[str],
    frontend: Frontend,
    *,
    single_turn: bool = False,
    attached: Mapping[int, Sequence[Message]] | None = None,
    takes_files: bool = False,
) -> tuple[Message, ...]:
    """Return the messages, oldest first; the last one is the question. Some clients use ``input`` for ``messages``.

    Args:
        body: The members named in `READ`.
        roles: The roles of the dialect.
        frontend: Has the limit of messages.
        single_turn: Only the last message of the user counts.
        attached: Messages to put before a message, by the message's number.
        takes_files: The caller reads files inside messages; else they are refused.

    Raises:
        InvalidRequest: A message is invalid, or an attached one belongs to none; the error names it.
    """
    name = "messages" if body.get("messages") is not None else "input"
    items = body.get(name)
    if isinstance(items, str):
        items = [{"role": "user", "content": items}]
    if not isinstance(items, list) or not items:
        raise body.wrong("messages", "must be a non-empty list of messages")
    frontend.check_messages(len(items), name)
    spoken = [_message(item, f"{name}[{at}]", roles, takes_files=takes_files) for at, item in enumerate(items)]
    last = len(spoken) - 1
    if single_turn:
        last = max((at for at, message in enumerate(spoken) if message.role == "user"), default=last)
    path = f"{name}[{last}]"
    if spoken[last].role != "user":
        raise InvalidRequest(f"{path}.role must be user: there is nothing to answer.", field=f"{path}.role")
    if not spoken[last].text.strip():
        raise InvalidRequest(f"{path}.content must not be empty: there is no question.", field=f"{path}.content")
    if single_turn:
        return (spoken[last],)
    before = attached or {}
    for at in before.keys() - range(len(spoken)):
        raise InvalidRequest(f"There is no {name}[{at}] for its files.", field=f"{name}[{at}]")
    return tuple(each for at, message in enumerate(spoken) for each in (*before.get(at, ()), message))


def _message(item: Any, path: str, roles: Sequence[str], *, takes_files: bool) -> Message:
    if not isinstance(item, dict):
        raise InvalidRequest(f"{path} must be an object.", field=path)
    message = Fields(item, path)
    role = message.text("role")
    if role not in roles:
        raise message.wrong("role", f"must be one of {', '.join(roles)}, not {role[:100]!r}")
    if not takes_files:
        json_files.refuse(message)
    return Message(role, message.text("content"))
