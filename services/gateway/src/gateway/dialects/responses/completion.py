"""Reads a chat completion that a model server sent in one piece, for an answer of the Responses API."""

from dataclasses import dataclass
from typing import Any

import msgspec

from gateway.dialects.responses.members import token_count
from gateway.domain import Delta, Usage
from gateway.domain.deltas import choices_of

_REASONING_MEMBERS = ("reasoning_content", "reasoning")
_encode = msgspec.json.encode


@dataclass(frozen=True, slots=True)
class FirstChoice:
    """The first choice of a completion, as the events of a stream.

    Attributes:
        deltas: The reasoning, then the text, then the other members of the message.
        finish_reason: The reason why the model stopped, or empty if it is not known.
        usage: The token counts, or None if the model server sent none.
    """

    deltas: tuple[Delta, ...]
    finish_reason: str
    usage: Usage | None


def first_choice(completion: dict[str, Any]) -> FirstChoice:
    """Return the first choice of a completion. A completion without choices has an empty choice.

    Raises:
        Unavailable: A choice, a message or a tool call is invalid.
    """
    choice = next(iter(choices_of(completion)), {})
    message = {name: value for name, value in (choice.get("message") or {}).items() if value is not None}
    text = message.pop("content", "")
    extra_json = _encode({"logprobs": choice["logprobs"]}) if choice.get("logprobs") else b""
    reasoning = {name: message.pop(name) for name in _REASONING_MEMBERS if name in message}
    deltas = (
        Delta(0, "", _encode(reasoning)),
        Delta(0, text if isinstance(text, str) else "", b"", extra_json),
        Delta(0, "", _encode(message)),
    )
    reason = choice.get("finish_reason")
    return FirstChoice(deltas, reason if isinstance(reason, str) else "", _usage(completion.get("usage")))


def _usage(counts: Any) -> Usage | None:
    if not counts or not isinstance(counts, dict):
        return None
    prompt, answer = token_count(counts, "prompt_tokens"), token_count(counts, "completion_tokens")
    return Usage(prompt, answer, _encode(counts))
