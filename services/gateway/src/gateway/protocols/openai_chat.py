"""OpenAI chat completions, with retrieval where the request names an index.

Sources: the OpenAI API reference for chat completions; the RAGEngine chat completion algorithm for ``index_name``,
``context_token_ratio``, the splitting of messages and the cases that go through to the model as they came.
"""

from collections.abc import Callable
from dataclasses import replace

import msgspec
from servicekit.errors import CausewayError, InvalidRequest
from servicekit.principal import Principal

from gateway.domain import Detectors, Message, PromptStyle, Retrieval, RetrievalMode, Turn
from gateway.protocols import detectors as detectors_block
from gateway.protocols import reading
from gateway.protocols.exchange import Exchange, Media
from gateway.protocols.openai_render import OpenAiExchange
from gateway.protocols.problem import problem
from gateway.protocols.reading import Fields

OURS = ("index_name", "context_token_ratio", "detectors", "retrieval")
"""Members of a request that are the platform's and never reach a model server."""

MODES = tuple(mode.value for mode in RetrievalMode)
_ROLES = ("system", "user", "assistant", "developer")
_TEXT_PARTS = ("text",)
_INVALID = "Invalid request format"


class OpenAiChat:
    """`Dialect` of ``POST /v1/chat/completions``.

    Args:
        policy: Gives the detectors that every request goes through.
    """

    name = "openai"
    media = Media(unary=b"application/json", stream=b"text/event-stream; charset=utf-8")

    def __init__(self, policy: Callable[[], Detectors]) -> None:
        self._policy = policy

    def parse(self, body: bytes, principal: Principal, *, streaming: bool | None) -> Exchange:
        """See `Dialect`; the body's ``stream`` decides."""
        raw: dict[str, msgspec.Raw] = reading.decode(body, dict[str, msgspec.Raw])
        known = Fields({name: msgspec.json.decode(value) for name, value in raw.items() if name != "messages"})
        stream = known.flag("stream") if streaming is None else streaming
        index = known.text("index_name")
        ratio = _ratio(known)
        detectors = self._policy() + detectors_block.parse(known.object("detectors"))
        original = body if raw.keys().isdisjoint(OURS) else _without(raw, OURS)
        turn = Turn(
            principal=principal,
            question="",
            model=known.text("model"),
            parameters_json=_without(raw, (*OURS, "messages", "model", "stream", "stream_options")),
            original_json=original,
            passthrough=True,
        )
        tools = known.get("tools") or known.get("functions")
        if (index and not tools) or detectors != Detectors():
            turn = _conversation(raw, turn, known, index if not tools else "", ratio, detectors)
        usage = known.object("stream_options").flag("include_usage")
        return OpenAiExchange(turn, streaming=stream, include_usage=usage)

    def error(self, error: CausewayError) -> bytes:
        """OpenAI's clients read ``error``, RAGEngine's read ``detail``: both are there."""
        return problem(error)


def _ratio(known: Fields) -> float:
    value = known.get("context_token_ratio")
    if value is None:
        return 0.5
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.2 <= value <= 0.8:
        raise InvalidRequest(
            f"Invalid context_token_ratio: {value}. Must be between 0.2 and 0.8.", field="context_token_ratio"
        )
    return float(value)


def _without(raw: dict[str, msgspec.Raw], names: tuple[str, ...]) -> bytes:
    """The object less some members; the others keep their bytes."""
    kept = (msgspec.json.encode(name) + b":" + bytes(value) for name, value in raw.items() if name not in names)
    return b"{" + b",".join(kept) + b"}"


def _conversation(
    raw: dict[str, msgspec.Raw], turn: Turn, known: Fields, index: str, ratio: float, detectors: Detectors
) -> Turn:
    """The turn of a request that is not passed through, or the turn as it is where the messages ask for that."""
    messages = _messages(raw)
    if messages is None:
        if detectors != Detectors():
            raise InvalidRequest(
                "Detectors need messages of text with the roles system, user, assistant or developer.",
                field="messages",
            )
        return turn
    question, history = _split(messages)
    options = known.object("retrieval")
    return replace(
        turn,
        question=question,
        history=tuple(history),
        retrieval=Retrieval(
            indexes=(index,) if index else (),
            mode=RetrievalMode(options.one_of("mode", MODES) or "hybrid"),
            top=options.integer("top", 1, 1000),
            include_category=options.text("include_category"),
            exclude_category=options.text("exclude_category"),
            minimum_score=options.number("minimum_score", -1e9, 1e9),
            context_token_ratio=ratio,
        ),
        style=PromptStyle.CONTEXT_IN_SYSTEM_MESSAGE,
        # Both names are OpenAI's; the newer one wins.
        max_tokens=known.integer("max_completion_tokens", 1, 2**31) or known.integer("max_tokens", 1, 2**31),
        detectors=detectors,
        passthrough=False,
    )


def _messages(raw: dict[str, msgspec.Raw]) -> list[Message] | None:
    """The messages; None where a role or a part of theirs is the model's business alone."""
    try:
        items = msgspec.json.decode(raw.get("messages", b"null"), type=list[dict[str, msgspec.Raw]])
    except msgspec.ValidationError:
        items = []
    if not items:
        raise InvalidRequest(f"{_INVALID}: messages must be a non-empty list of objects.", field="messages")
    messages = [_message(item, f"messages[{at}]") for at, item in enumerate(items)]
    return None if None in messages else [message for message in messages if message is not None]


def _message(item: dict[str, msgspec.Raw], path: str) -> Message | None:
    role = msgspec.json.decode(item.get("role", b"null"))
    if not isinstance(role, str) or not role:
        raise InvalidRequest(f"{_INVALID}: messages must contain 'role'.", field=f"{path}.role")
    content = msgspec.json.decode(item.get("content", b"null"))
    if content is None and role != "assistant":
        raise InvalidRequest(
            f"{_INVALID}: messages must contain 'content' for role '{role}'.", field=f"{path}.content"
        )
    if content is not None and not isinstance(content, str | list):
        raise InvalidRequest(f"{_INVALID}: 'content' must be a string or a list of parts.", field=f"{path}.content")
    if role == "user" and not content:
        raise InvalidRequest(f"{_INVALID}: user messages must contain 'content'.", field=f"{path}.content")
    if role not in _ROLES:
        return None
    extra = _without(item, ("role", "content"))
    if isinstance(content, list):
        texts = [part.get("text") for part in content if isinstance(part, dict) and part.get("type") in _TEXT_PARTS]
        if role == "user" and len(texts) < len(content):
            return None
        text = "\n".join(text for text in texts if isinstance(text, str))
        parts = bytes(item["content"]) if len(texts) < len(content) else b""
        return Message(role, text, parts, extra if extra != b"{}" else b"")
    return Message(role, content or "", b"", extra if extra != b"{}" else b"")


def _split(messages: list[Message]) -> tuple[str, list[Message]]:
    """The question, which is what the user said since the latest answer, and everything else in order."""
    latest = max((at for at, message in enumerate(messages) if message.role == "assistant"), default=-1)
    asked = [message.text for message in messages[latest + 1 :] if message.role == "user"]
    if not asked:
        raise InvalidRequest("There must be a user prompt since the latest assistant message.", field="messages")
    history = [message for at, message in enumerate(messages) if at <= latest or message.role != "user"]
    return "\n\n".join(asked), history
