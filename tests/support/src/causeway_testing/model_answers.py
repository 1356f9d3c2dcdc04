"""Answers of a model server in tests: unary and streamed chat completions, embeddings, and faults."""

import asyncio
import enum
import json
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

STREAM = "text/event-stream; charset=utf-8"
JSON = "application/json"
DONE = b"data: [DONE]\n\n"
_TOO_MANY = 429
_SERVER_FAULT = 500
_HUGE = 10_000_000
_WORD = re.compile(r"\w+")


class Fault(enum.Enum):
    """A step of an answer that simulates a fault of the server."""

    HANG = "the server sends no more bytes and leaves the connection open"
    CLOSE = "the server closes the connection before the end of the answer"
    RESET = "the server resets the connection"


Step = bytes | float | asyncio.Event | Fault
"""Bytes to write, a pause in seconds, an event to await, or a fault."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The server's answer to a request.

    Attributes:
        body: The steps of the body. A stream, or a body with a pause or a fault, has one HTTP chunk for each step.
            Other bodies have a content length.
        before: The steps before the status line: pauses and faults.
    """

    body: tuple[Step, ...]
    status: int = 200
    content_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)
    before: tuple[float | Fault, ...] = ()


def chunk(
    delta: Mapping[str, Any], finish_reason: str | None = None, *, index: int = 0, **members: Any
) -> dict[str, Any]:
    """Return a chunk of a streamed chat completion with one choice, and with further members."""
    choice = {"index": index, "delta": dict(delta), "logprobs": None, "finish_reason": finish_reason}
    return {**_head("chat.completion.chunk"), **members, "choices": [choice]}


def sse(payload: Mapping[str, Any] | bytes) -> bytes:
    """Return an event of a stream."""
    data = payload if isinstance(payload, bytes) else json.dumps(payload, separators=(",", ":")).encode()
    return b"data: " + data + b"\n\n"


def stream(tokens: Sequence[str], *, pace: float = 0.0, usage: bool = True, burst: bool = False) -> Answer:
    """Return a streamed answer with one token in each chunk.

    Args:
        tokens: The tokens.
        pace: Seconds between two chunks.
        usage: Whether the stream ends with a usage chunk.
        burst: Whether the server sends the whole stream in one piece.
    """
    events = [sse(chunk({"role": "assistant", "content": ""}))]
    events += [sse(chunk({"content": token})) for token in tokens]
    events.append(sse(chunk({}, "stop")))
    if usage:
        events.append(sse({**_head("chat.completion.chunk"), "choices": [], "usage": _usage(len(tokens))}))
    events.append(DONE)
    steps: list[Step] = [b"".join(events)] if burst else []
    for event in () if burst else events:
        steps.append(event)
        if pace:
            steps.append(pace)
    return Answer(tuple(steps), content_type=STREAM)


def completion(text: str, *, tokens: int = 2, **members: Any) -> Answer:
    """Return a unary answer. ``members`` are further members of the choice."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop", **members}
    document = {**_head("chat.completion"), "choices": [choice], "usage": _usage(tokens)}
    return Answer((json.dumps(document).encode(),))


def embeddings(texts: Sequence[str], dimension: int) -> Answer:
    """Return a vector for each text: twice the number of its words in each hash bucket, not normalized."""
    rows = []
    for text in texts:
        row = [0.0] * dimension
        for word in _WORD.findall(text.casefold()):
            row[zlib.crc32(word.encode()) % dimension] += 2.0
        rows.append(row)
    data = [{"object": "embedding", "index": at, "embedding": row} for at, row in enumerate(rows)]
    return Answer((json.dumps({"object": "list", "data": data, "model": "stub"}).encode(),))


def refusal(status: int, message: str, *, retry_after: float | None = None) -> Answer:
    """Return an error with a body in OpenAI's format."""
    kind = "invalid_request_error" if status < _SERVER_FAULT else "server_error"
    kind = "rate_limit_error" if status == _TOO_MANY else kind
    body = json.dumps({"error": {"message": message, "type": kind, "param": None, "code": None}}).encode()
    headers = {} if retry_after is None else {"retry-after": f"{retry_after:g}"}
    return Answer((body,), status=status, headers=headers)


def _first_event() -> bytes:
    return sse(chunk({"role": "assistant", "content": "Good so far"}))


FAULTS: dict[str, Callable[[], Answer]] = {
    "fault-hang-before": lambda: Answer((), before=(Fault.HANG,)),
    "fault-close-before": lambda: Answer((), before=(Fault.CLOSE,)),
    "fault-hang-mid": lambda: Answer((_first_event(), Fault.HANG), content_type=STREAM),
    "fault-close-mid": lambda: Answer((_first_event(), Fault.CLOSE), content_type=STREAM),
    "fault-reset-mid": lambda: Answer((_first_event(), 0.02, Fault.RESET), content_type=STREAM),
    "fault-ends-early": lambda: Answer((_first_event(), 0.0), content_type=STREAM),
    "fault-broken-json": lambda: Answer((_first_event(), b'data: {"choices": [}\n\n', DONE), content_type=STREAM),
    "fault-no-utf8": lambda: Answer(
        (_first_event(), sse(b'{"choices":[{"delta":{"content":"\xff"}}]}')), content_type=STREAM
    ),
    "fault-deep": lambda: Answer((_first_event(), sse(b'{"choices":' + b"[" * 50_000)), content_type=STREAM),
    "fault-half-line": lambda: Answer(
        (_first_event(), b'data: {"choices":[{"ind', Fault.CLOSE), content_type=STREAM
    ),
    "fault-huge-chunk": lambda: Answer(
        (_first_event(), sse(chunk({"content": "x" * _HUGE})), DONE), content_type=STREAM
    ),
    "fault-huge-body": lambda: completion("x" * _HUGE),
    "fault-400": lambda: refusal(400, "This model does not take that."),
    "fault-429": lambda: refusal(429, "Too many requests.", retry_after=7),
    "fault-500": lambda: refusal(500, "Something broke."),
    "fault-503": lambda: refusal(503, "Loading the model.", retry_after=2),
}
"""Faulty answers, by name."""


def _head(kind: str) -> dict[str, Any]:
    return {"id": "chatcmpl-stub", "object": kind, "created": 1_700_000_000, "model": "stub"}


def _usage(tokens: int) -> dict[str, int]:
    return {"prompt_tokens": 7, "completion_tokens": tokens, "total_tokens": 7 + tokens}
