"""The OpenAI API for models without this API: parses requests, writes chunks and completions.

https://platform.openai.com/docs/api-reference/chat
"""

import contextlib
import re
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import Raw
from servicekit.errors import InvalidRequest

from generator.domain import ChatMessage, Conversation, Event, EventKind, Usage

_encode = msgspec.json.encode
_MISSING = re.compile("missing required field `([^`]+)`")
_NULL = Raw(b"null")


class _StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class _Head(msgspec.Struct):
    messages: list[Raw]
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    n: int | None = None


class _Message(msgspec.Struct):
    role: str
    content: str | list[Any] | None = None


_head = msgspec.json.Decoder(_Head)
_message = msgspec.json.Decoder(_Message)
_members = msgspec.json.Decoder(dict[str, Raw])
_values = msgspec.json.Decoder(dict[str, Any])


@dataclass(frozen=True, slots=True)
class Request:
    """A chat completion request.

    Attributes:
        conversation: The request as a prompt in the platform's own format.
        stream: The client requests chunks.
        with_usage: The client requests the usage in the last chunk.
        choices: The requested number of choices, but at least 1; the model checks the requested number later.
    """

    conversation: Conversation
    stream: bool
    with_usage: bool
    choices: int


def parse(body: bytes) -> Request:
    """Parse a chat completion request.

    Raises:
        InvalidRequest: The request is invalid.
    """
    try:
        head = _head.decode(body)
        members = _members.decode(body)
    except (ValueError, RecursionError) as error:
        raise invalid(error) from error
    if not head.messages:
        raise InvalidRequest("'messages' must not be empty.", field="messages")
    parameters = {
        name: value
        for name, value in members.items()
        if name not in ("messages", "model", "stream", "stream_options")
    }
    return Request(
        Conversation(
            tuple(_parse_message(raw, f"messages[{index}]") for index, raw in enumerate(head.messages)),
            parameters_json=_encode(parameters),
        ),
        stream=head.stream is True,
        with_usage=head.stream_options is not None and head.stream_options.include_usage is True,
        choices=max(1, head.n or 1),
    )


def invalid(error: ValueError | RecursionError, within: str = "") -> InvalidRequest:
    """Return the error for an invalid document, with the path of the invalid value.

    Args:
        error: The decoder's error.
        within: The path of the document within the request.
    """
    message, _, path = str(error).partition(" - at ")
    missing = _MISSING.search(message)
    steps = [within, path.strip("`").removeprefix("$").removeprefix("."), missing[1] if missing else ""]
    return InvalidRequest(f"Invalid request: {message}.", field=".".join(filter(None, steps)) or None)


def _parse_message(raw: Raw, path: str) -> ChatMessage:
    try:
        _values.decode(raw)  # templates read all members
        message = _message.decode(raw)
        members = _members.decode(raw)
    except (ValueError, RecursionError) as error:
        raise invalid(error, path) from error
    content = members.pop("content", _NULL)
    members.pop("role")
    extra = _encode(members) if members else b""
    if isinstance(message.content, list):
        return ChatMessage(message.role, content_json=bytes(content), extra_json=extra)
    return ChatMessage(message.role, message.content or "", extra_json=extra)


def start(model: str) -> Event:
    """Return the first event of a conversation's answer, with the model's name."""
    return Event(EventKind.START, raw_json=_encode({"model": model}))


class Writer:
    """Writes the answer to one request from a model's events.

    Args:
        model: The public name of the model.
        completion_id: The id of the completion.
        created: The time of the completion, in seconds since 1970.
    """

    def __init__(self, model: str, completion_id: str, created: int) -> None:
        self._model = model
        self._id = completion_id
        self._created = created

    async def answer(self, request: Request, events: AsyncGenerator[Event, None]) -> AsyncGenerator[Event, None]:
        """Yield one COMPLETION, or CHUNKs, from the events of the answer."""
        async with contextlib.aclosing(events):
            if not request.stream:
                yield Event(EventKind.COMPLETION, raw_json=await self._completion(events, request.choices))
                return
            async for event in events:
                for chunk in self._chunks(event, request):
                    yield Event(EventKind.CHUNK, raw_json=chunk)

    def _chunks(self, event: Event, request: Request) -> list[bytes]:
        """Return the chunks for an event.

        The chunks of an answer have the role, then the pieces of text, the finish reasons, and the usage if the
        client requests it.
        """
        extra = {"usage": None} if request.with_usage else {}
        if event.kind is EventKind.TEXT:
            return [self._chunk(event.choice, {"content": event.text}, None, extra)]
        if event.kind is EventKind.START:
            role = {"role": "assistant", "content": ""}
            return [self._chunk(choice, role, None, extra) for choice in range(request.choices)]
        if event.kind is EventKind.FINISH:
            return [self._chunk(event.choice, {}, event.text, extra)]
        if event.usage is not None and request.with_usage:
            return [
                _encode(
                    {**self._common_members("chat.completion.chunk"), "choices": [], "usage": _usage(event.usage)}
                )
            ]
        return []

    async def _completion(self, events: AsyncGenerator[Event, None], choices: int) -> bytes:
        """Return the answer in one piece."""
        texts: list[list[str]] = [[] for _ in range(choices)]
        reasons: list[str | None] = [None] * choices
        usage = Usage(0, 0, exact=False)
        async for event in events:
            if event.kind is EventKind.TEXT:
                texts[event.choice].append(event.text)
            elif event.kind is EventKind.FINISH:
                reasons[event.choice] = event.text
            elif event.usage is not None:
                usage = event.usage
        objects = [
            {
                "index": choice,
                "message": {"role": "assistant", "content": "".join(texts[choice]), "refusal": None},
                "logprobs": None,
                "finish_reason": reasons[choice],
            }
            for choice in range(choices)
        ]
        return _encode({**self._common_members("chat.completion"), "choices": objects, "usage": _usage(usage)})

    def _chunk(self, choice: int, delta: dict[str, str], reason: str | None, extra: dict[str, None]) -> bytes:
        choice_object = {"index": choice, "delta": delta, "logprobs": None, "finish_reason": reason}
        return _encode({**self._common_members("chat.completion.chunk"), "choices": [choice_object], **extra})

    def _common_members(self, kind: str) -> dict[str, Any]:
        return {"id": self._id, "object": kind, "created": self._created, "model": self._model}


def _usage(usage: Usage) -> dict[str, int]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }
