"""OpenAI chat completions, with retrieval where the request names an index.

Sources: the OpenAI API reference for chat completions; the RAGEngine chat completion algorithm for ``index_name``,
``context_token_ratio``, the splitting of messages and the cases that go through to the model as they came.
"""

from collections.abc import Sequence
from dataclasses import replace

import msgspec
from servicekit.errors import CausewayError, InvalidRequest

from gateway.domain import Detectors, Message, PromptStyle, Retrieval, RetrievalMode, Turn
from gateway.protocols import detectors as detectors_block
from gateway.protocols import reading
from gateway.protocols.exchange import ChatRequest, Exchange, Media
from gateway.protocols.openai_render import OpenAiExchange
from gateway.protocols.problem import problem
from gateway.protocols.reading import Fields

OURS = ("index_name", "context_token_ratio", "detectors", "retrieval")
"""Members of a request that are the platform's and never reach a model server."""

MODES = tuple(mode.value for mode in RetrievalMode)
_ROLES = ("system", "user", "assistant", "developer")
_SPOKEN = ("user", "tool", "function")
_LONGEST_ANSWER = 2**31
_INVALID = "Invalid request format"

# What is read of a request that goes to the model as it came; its other members are the model server's to judge.
_READ = (*OURS, "model", "stream")
_READ_OF_A_CONVERSATION = (*_READ, "stream_options", "max_tokens", "max_completion_tokens")

_messages_decoder = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])


class OpenAiChat:
    """`Dialect` of ``POST /v1/chat/completions``."""

    name = "openai"
    media = Media(unary=b"application/json", stream=b"text/event-stream; charset=utf-8")

    def parse(self, request: ChatRequest) -> Exchange:
        """See `Dialect`; the body's ``stream`` decides."""
        body, frontend = request.body, request.frontend
        raw = reading.members(body)
        known = _fields(raw, _READ)
        stream = known.flag("stream") if request.streaming is None else request.streaming
        index, ratio = known.text("index_name"), _ratio(known)
        detectors = frontend.detectors + detectors_block.parse(known.object("detectors"))
        turn = Turn(
            principal=request.principal,
            question="",
            frontend=frontend.name,
            model=known.text("model") or frontend.model,
            original_json=body if raw.keys().isdisjoint(OURS) else _without(raw, OURS),
            passthrough=True,
            blocked_message=frontend.blocked_message,
        )
        if _has_items(raw, "tools") or _has_items(raw, "functions"):
            index = ""
        if index or detectors != Detectors():
            messages = _messages(raw)
            if not all(_searchable(message) for message in messages):
                index = ""
            if index or detectors != Detectors():
                known = _fields(raw, _READ_OF_A_CONVERSATION)
                turn = _conversation(turn, raw, known, messages, index, ratio, detectors)
        usage = not turn.passthrough and known.object("stream_options").flag("include_usage")
        return OpenAiExchange(turn, streaming=stream, include_usage=usage)

    def error(self, error: CausewayError) -> bytes:
        """OpenAI's clients read ``error``, RAGEngine's read ``detail``: both are there."""
        return problem(error)


def _fields(raw: dict[str, msgspec.Raw], names: Sequence[str]) -> Fields:
    return Fields({name: reading.value(raw[name], name) for name in names if name in raw})


def _has_items(raw: dict[str, msgspec.Raw], name: str) -> bool:
    return b"".join(bytes(raw.get(name, b"null")).split()) not in (b"null", b"[]", b"{}")


def _ratio(known: Fields) -> float:
    value = known.get("context_token_ratio")
    if value is None:
        return 0.5
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.2 <= value <= 0.8:
        raise InvalidRequest(
            f"Invalid context_token_ratio: {value}. Must be between 0.2 and 0.8.", field="context_token_ratio"
        )
    return float(value)


def _without(raw: dict[str, msgspec.Raw], names: Sequence[str]) -> bytes:
    """The object less some members; the others keep their bytes."""
    return msgspec.json.encode({name: value for name, value in raw.items() if name not in names})


def _conversation(
    turn: Turn,
    raw: dict[str, msgspec.Raw],
    known: Fields,
    messages: list[Message],
    index: str,
    ratio: float,
    detectors: Detectors,
) -> Turn:
    """The turn of a request that is not passed through."""
    if index:
        question, history = _split(messages)
    else:
        question, history = _as_it_came(messages)
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
        parameters_json=_without(raw, (*OURS, "messages", "model", "stream", "stream_options")),
        # Both names are OpenAI's; the newer one wins.
        max_tokens=known.integer("max_completion_tokens", 1, _LONGEST_ANSWER)
        or known.integer("max_tokens", 1, _LONGEST_ANSWER),
        detectors=detectors,
        passthrough=False,
    )


def _messages(raw: dict[str, msgspec.Raw]) -> list[Message]:
    try:
        items = _messages_decoder.decode(raw.get("messages", b"null"))
    except (ValueError, RecursionError):
        items = []
    if not items:
        raise InvalidRequest(f"{_INVALID}: messages must be a non-empty list of objects.", field="messages")
    return [_message(item, f"messages[{at}]") for at, item in enumerate(items)]


def _message(item: dict[str, msgspec.Raw], path: str) -> Message:
    role = reading.value(item.get("role"), f"{path}.role")
    if not isinstance(role, str) or not role:
        raise InvalidRequest(f"{_INVALID}: messages must contain 'role'.", field=f"{path}.role")
    field = f"{path}.content"
    content = reading.value(item.get("content"), field)
    if content is None and role != "assistant":
        raise InvalidRequest(f"{_INVALID}: messages must contain 'content' for role '{role}'.", field=field)
    if content is not None and not isinstance(content, str | list):
        raise InvalidRequest(f"{_INVALID}: 'content' must be a string or a list of parts.", field=field)
    if role == "user" and not content:
        raise InvalidRequest(f"{_INVALID}: user messages must contain 'content'.", field=field)
    extra = _without(item, ("role", "content"))
    extra = b"" if extra == b"{}" else extra
    if isinstance(content, list):
        texts = [part["text"] for part in content if _is_text(part)]
        if len(texts) < len(content):
            return Message(role, "", bytes(item["content"]), extra)
        content = "\n".join(texts)
    return Message(role, content or "", b"", extra)


def _is_text(part: object) -> bool:
    return isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)


def _searchable(message: Message) -> bool:
    """Retrieval knows what to do with it; else the model alone does."""
    return message.role in _ROLES and not (message.role == "user" and message.content_json)


def _split(messages: list[Message]) -> tuple[str, list[Message]]:
    """The question, which is what the user said since the latest answer, and everything else in order."""
    latest = max((at for at, message in enumerate(messages) if message.role == "assistant"), default=-1)
    asked = [message.text for message in messages[latest + 1 :] if message.role == "user"]
    if not any(text.strip() for text in asked):
        raise InvalidRequest("There must be a user prompt since the latest assistant message.", field="messages")
    history = [message for at, message in enumerate(messages) if at <= latest or message.role != "user"]
    return "\n\n".join(asked), history


def _as_it_came(messages: list[Message]) -> tuple[str, list[Message]]:
    """The last message, where it is the user's, and those before it: without retrieval nothing is put together."""
    for at, message in enumerate(messages):
        if message.content_json and message.role in _SPOKEN:
            raise InvalidRequest(
                f"messages[{at}].content holds parts other than text, which the detectors cannot read.",
                field=f"messages[{at}].content",
            )
    last = messages[-1]
    if last.role != "user" or last.extra_json:
        return "", messages
    return last.text, messages[:-1]
