"""The OpenAI API as this model speaks it itself: requests read, chunks and completions written.

https://platform.openai.com/docs/api-reference/chat
"""

import hashlib
from collections.abc import Iterator
from typing import Any

import msgspec
from servicekit.errors import UpstreamRejected

from generator.domain import ChatMessage
from generator.extractive.pieces import text_of
from generator.extractive.wording import Wanted, Worded, located

_BAD_REQUEST = 400
_encode = msgspec.json.encode


class _StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class _Message(msgspec.Struct):
    role: str
    content: str | list[Any] | None = None


class Request(Wanted, kw_only=True):
    """What is read of a chat completion request."""

    messages: list[_Message]
    stream: bool | None = None
    stream_options: _StreamOptions | None = None

    @property
    def with_usage(self) -> bool:
        """A stream ends with its usage."""
        return self.stream_options is not None and self.stream_options.include_usage is True

    def texts(self) -> list[ChatMessage]:
        """The messages."""
        return [
            ChatMessage(message.role, message.content or "")
            if not isinstance(message.content, list)
            else ChatMessage(
                message.role, text_of(ChatMessage(message.role, content_json=_encode(message.content)))
            )
            for message in self.messages
        ]


_request = msgspec.json.Decoder(Request)


def parse(body: bytes) -> Request:
    """A request.

    Raises:
        UpstreamRejected: It is none; as any model server would say it.
    """
    try:
        request = _request.decode(body)
    except msgspec.DecodeError as error:
        message, path = located(error)
        raise _refusal(f"Invalid request: {message}.", path or None) from error
    if not request.messages:
        raise _refusal("'messages' must not be empty.", "messages")
    problem = request.problem()
    if problem is not None:
        raise _refusal(problem[1], problem[0])
    return request


def _refusal(message: str, parameter: str | None) -> UpstreamRejected:
    error = {"message": message, "type": "invalid_request_error", "param": parameter, "code": None}
    return UpstreamRejected(message, status=_BAD_REQUEST, body=_encode({"error": error}).decode())


class Writer:
    """Writes the answer to one request.

    Args:
        model: The public name of the model.
        body: The request; its hash is the answer's id, so that the same request has the same answer.
        created: Seconds since 1970.
    """

    def __init__(self, model: str, body: bytes, created: int) -> None:
        self._model = model
        self._id = f"chatcmpl-{hashlib.sha256(body).hexdigest()[:29]}"
        self._created = created

    def chunks(self, said: Worded, choices: int, usage: dict[str, int] | None) -> Iterator[bytes]:
        """The chunks of a streamed answer: the role, the pieces, the reason; then usage, where it was asked for."""
        extra = {} if usage is None else {"usage": None}
        for choice in range(choices):
            yield self._chunk(choice, {"role": "assistant", "content": ""}, None, extra)
        for piece in said.pieces:
            for choice in range(choices):
                yield self._chunk(choice, {"content": piece}, None, extra)
        for choice in range(choices):
            yield self._chunk(choice, {}, said.finish_reason, extra)
        if usage is not None:
            yield _encode({**self._head("chat.completion.chunk"), "choices": [], "usage": usage})

    def completion(self, said: Worded, choices: int, usage: dict[str, int]) -> bytes:
        """The answer in one piece."""
        message = {"role": "assistant", "content": "".join(said.pieces), "refusal": None}
        each = [
            {"index": choice, "message": message, "logprobs": None, "finish_reason": said.finish_reason}
            for choice in range(choices)
        ]
        return _encode({**self._head("chat.completion"), "choices": each, "usage": usage})

    def _chunk(self, choice: int, delta: dict[str, str], reason: str | None, extra: dict[str, None]) -> bytes:
        each = {"index": choice, "delta": delta, "logprobs": None, "finish_reason": reason}
        return _encode({**self._head("chat.completion.chunk"), "choices": [each], **extra})

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self._id, "object": kind, "created": self._created, "model": self._model}
