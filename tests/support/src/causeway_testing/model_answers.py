"""Answers of a model server in tests: chat completions, unary and streamed, embeddings, and faults."""

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
    """A step of an answer that is a fault."""

    HANG = "nothing more is sent, the connection stays open"
    CLOSE = "the connection is closed here, however much is missing"
    RESET = "the connection is reset"


Step = bytes | float | asyncio.Event | Fault
"""Bytes are written at once, a number is a pause in seconds, an event is waited for."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The server's answer to a request.

    Attributes:
        body: The steps. A stream, a pause or a fault needs HTTP chunks, one for each step. Else it is one piece.
        before: The steps before the head: pauses and faults.
    """

    body: tuple[Step, ...]
    status: int = 200
    content_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)
    before: tuple[float | Fault, ...] = ()


def chunk(
    delta: Mapping[str, Any], finish_reason: str | None = None, *, index: int = 0, **members: Any
) -> dict[str, Any]:
    """Return a chunk of a streamed chat completion with one choice. ``members`` are further ones of the chunk."""
    choice = {"index": index, "delta": dict(delta), "logprobs": None, "finish_reason": finish_reason}
    return {**_head("chat.completion.chunk"), **members, "choices": [choice]}


def sse(payload: Mapping[str, Any] | bytes) -> bytes:
    """Return an event of a stream."""
    data = payload if isinstance(payload, bytes) else json.dumps(payload, separators=(",", ":")).encode()
    return b"data: " + data + b"\n\n"


def stream(tokens: Sequence[str], *, pace: float = 0.0, usage: bool = True, burst: bool = False) -> Answer:
    """Return a streamed answer with a token in each chunk, ``pace`` seconds apart. ``burst`` sends all in one
    piece.
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
    """Return a unary answer. ``members`` are further ones of the choice."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop", **members}
    document = {**_head("chat.completion"), "choices": [choice], "usage": _usage(tokens)}
    return Answer((json.dumps(document).encode(),))


def embeddings(texts: Sequence[str], dimension: int) -> Answer:
    """Return a vector for each text, not of length 1: the number of its words in each bucket."""
    rows = []
    for text in texts:
        row = [0.0] * dimension
        for word in _WORD.findall(text.casefold()):
            row[zlib.crc32(word.encode()) % dimension] += 2.0
        rows.append(row)
    data = [{"object": "embedding", "index": at, "embedding": row} for at, row in enumerate(rows)]
    return Answer((json.dumps({"object": "list", "data": data, "model": "stub"}).encode(),))


def refusal(status: int, message: str, *, retry_after: float | None = None) -> Answer:
    """Return an error with OpenAI's body."""
    kind = "invalid_request_error" if status < _SERVER_FAULT else "server_error"
    kind = "rate_limit_error" if status == _TOO_MANY else kind
    body = json.dumps({"error": {"message": message, "type": kind, "param": None, "code": None}}).encode()
    headers = {} if retry_after is None else {"retry-after": f"{retry_after:g}"}
    return Answer((body,), status=status, headers=headers)


def _good() -> bytes:
    return sse(chunk({"role": "assistant", "content": "Good so far"}))


FAULTS: dict[str, Callable[[], Answer]] = {
    "fault-hang-before": lambda: Answer((), before=(Fault.HANG,)),
    "fault-close-before": lambda: Answer((), before=(Fault.CLOSE,)),
    "fault-hang-mid": lambda: Answer((_good(), Fault.HANG), content_type=STREAM),
    "fault-close-mid": lambda: Answer((_good(), Fault.CLOSE), content_type=STREAM),
    "fault-reset-mid": lambda: Answer((_good(), 0.02, Fault.RESET), content_type=STREAM),
    "fault-ends-early": lambda: Answer((_good(), 0.0), content_type=STREAM),
    "fault-broken-json": lambda: Answer((_good(), b'data: {"choices": [}\n\n', DONE), content_type=STREAM),
    "fault-no-utf8": lambda: Answer(
        (_good(), sse(b'{"choices":[{"delta":{"content":"\xff"}}]}')), content_type=STREAM
    ),
    "fault-deep": lambda: Answer((_good(), sse(b'{"choices":' + b"[" * 50_000)), content_type=STREAM),
    "fault-half-line": lambda: Answer((_good(), b'data: {"choices":[{"ind', Fault.CLOSE), content_type=STREAM),
    "fault-huge-chunk": lambda: Answer((_good(), sse(chunk({"content": "x" * _HUGE})), DONE), content_type=STREAM),
    "fault-huge-body": lambda: completion("x" * _HUGE),
    "fault-400": lambda: refusal(400, "This model does not take that."),
    "fault-429": lambda: refusal(429, "Too many requests.", retry_after=7),
    "fault-500": lambda: refusal(500, "Something broke."),
    "fault-503": lambda: refusal(503, "Loading the model.", retry_after=2),
}
"""Answers that go wrong, by name."""


def _head(kind: str) -> dict[str, Any]:
    return {"id": "chatcmpl-stub", "object": kind, "created": 1_700_000_000, "model": "stub"}


def _usage(tokens: int) -> dict[str, int]:
    return {"prompt_tokens": 7, "completion_tokens": tokens, "total_tokens": 7 + tokens}
