"""The route that receives a stream of content and returns a stream of detections."""

import asyncio
import gc
import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from causeway_testing.gateway.answering import FakeGuardrails
from gateway.dialects.orchestrator.registration import STREAM_CONTENT
from gateway.identity.caller import Caller
from gateway.ports.answering import Clearance, Watch
from gateway.routes.stream_content import StreamContent
from gateway.server.request_state import state_of
from servicekit.errors import Unavailable
from servicekit.principal import LOCAL

MEDIA = {"content-type": "application/x-ndjson"}
WORDS: dict[str, Any] = {"detectors": {"words": {}}}


def lines(*objects: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in objects)


async def test_findings_have_positions_in_the_whole_content(client: httpx.AsyncClient) -> None:
    """Positions refer to the whole content, across its lines, and the response lines cover the content."""
    content = lines({**WORDS, "content": "a sec"}, {"content": "ret "}, {"detectors": None, "content": "b"})
    response = await client.post(STREAM_CONTENT, content=content, headers=MEDIA)
    assert response.headers["content-type"] == "application/x-ndjson"
    received = [json.loads(line) for line in response.text.splitlines()]
    assert [found["start"] for line in received for found in line["detections"]] == [2]
    assert [line["start_index"] for line in received] == [0, *(line["processed_index"] for line in received[:-1])]
    assert received[-1]["processed_index"] == len("a secret b")


@pytest.mark.parametrize(
    ("content", "status", "details"),
    [
        (b"", 422, "`detectors` is required"),
        (lines({"content": "x"}), 422, "`detectors` is required"),
        (lines({**WORDS}), 422, "missing field `content`"),
        (lines({**WORDS, "content": "x", "more": 1}), 422, "unknown field `more`"),
        (lines({"detectors": {"unknown": {}}, "content": "x"}), 404, "detector `unknown` not found"),
        (b"{\n", 400, "Failed to parse the request body as JSON: "),
    ],
)
async def test_an_error_in_the_first_line_is_a_status(
    client: httpx.AsyncClient, content: bytes, status: int, details: str
) -> None:
    """An error in the first line causes a response with its status instead of a stream."""
    response = await client.post(STREAM_CONTENT, content=content, headers=MEDIA)
    assert (response.status_code, response.json()["code"]) == (status, status)
    assert details in response.json()["details"]


async def test_an_invalid_later_line_ends_the_stream(client: httpx.AsyncClient) -> None:
    """An error in a later line ends the stream with an error as the last line."""
    content = lines({**WORDS, "content": "x"}, {**WORDS, "content": "y"})
    response = await client.post(STREAM_CONTENT, content=content, headers=MEDIA)
    assert response.status_code == 200
    last = json.loads(response.text.splitlines()[-1])
    assert last == {"code": 422, "details": "`detectors` are allowed only in the first line"}


async def test_other_media_and_methods_are_refused(client: httpx.AsyncClient) -> None:
    """Another media type is refused with 415, and another method with 405."""
    response = await client.post(STREAM_CONTENT, json=WORDS)
    assert (response.status_code, response.json()["code"]) == (415, 415)
    response = await client.get(STREAM_CONTENT)
    assert (response.status_code, response.json()["code"]) == (405, 405)


def request() -> dict[str, Any]:
    """Return the ASGI scope of a request."""
    scope: dict[str, Any] = {
        "type": "http",
        "method": "POST",
        "path": STREAM_CONTENT,
        "headers": [(b"content-type", b"application/x-ndjson")],
    }
    state_of(scope).identify(Caller(LOCAL))
    return scope


class Watched(FakeGuardrails):
    """Guardrails that count the open watches."""

    open = 0

    @asynccontextmanager
    async def watch(self, *args: Any) -> AsyncIterator[Watch]:
        self.open += 1
        try:
            async with super().watch(*args) as watch:
                yield watch
        finally:
            self.open -= 1


async def test_detections_precede_the_end_of_the_content() -> None:
    """Detections are sent before the content is complete. The detectors stop when the client leaves."""
    guardrails = Watched()
    app = StreamContent(guardrails, timeout=10, passed_headers=frozenset())
    incoming: asyncio.Queue[Any] = asyncio.Queue()
    outgoing: asyncio.Queue[Any] = asyncio.Queue()

    serving = asyncio.create_task(app(request(), incoming.get, outgoing.put))
    first = lines({**WORDS, "content": "a secret "})
    await incoming.put({"type": "http.request", "body": first, "more_body": True})
    assert (await asyncio.wait_for(outgoing.get(), 60))["status"] == 200
    assert json.loads((await asyncio.wait_for(outgoing.get(), 60))["body"])["detections"]
    assert guardrails.open == 1
    await incoming.put({"type": "http.disconnect"})
    await asyncio.wait_for(serving, 60)
    assert guardrails.open == 0


class BrokenWatch:
    """A watch whose connection broke, so that all calls fail."""

    async def feed(self, *_: object, **__: object) -> Sequence[Clearance]:
        raise Unavailable("The detectors cannot be reached.")

    async def end(self) -> None:
        raise Unavailable("The detectors cannot be reached.")

    async def clearances(self) -> AsyncGenerator[Clearance, None]:
        raise Unavailable("The detectors cannot be reached.")
        yield  # type: ignore[unreachable]  # makes it a generator


class Breaking(FakeGuardrails):
    """Guardrails whose connection breaks after the first line."""

    @asynccontextmanager
    async def watch(self, *_: Any) -> AsyncIterator[Watch]:
        yield BrokenWatch()


async def test_a_broken_connection_is_one_error() -> None:
    """If sending and receiving fail together, the client gets one error, and asyncio logs no exception."""
    app = StreamContent(Breaking(), timeout=10, passed_headers=frozenset())
    logged: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: logged.append(context))
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": lines({**WORDS, "content": "x"}), "more_body": True}

    async def send(message: Any) -> None:
        sent.append(message)

    await app(request(), receive, send)
    gc.collect()
    assert json.loads(sent[-2]["body"])["details"] == "The detectors cannot be reached."
    assert logged == []
