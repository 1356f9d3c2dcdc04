import asyncio
import json
import time
from typing import Any

import httpx
import pytest
from causeway_testing.model_answers import Answer, Fault
from causeway_testing.model_server import ModelServer
from causeway_testing.servers import eventually

CLOSED_WITHIN = 0.1
NOISE = 0.15
"""Additional seconds for machines that are busy with other tests."""


async def disconnect(stack: Any, path: str, body: Any, *, after_lines: int) -> float:
    """Send a request, read some lines of its answer, and close the connection. Return the time of the close."""
    async with httpx.AsyncClient(base_url=stack.http.base_url) as http:
        request = http.build_request("POST", path, json=body)
        sending = asyncio.ensure_future(http.send(request, stream=True))
        if after_lines:
            response = await sending
            lines = response.aiter_lines()
            for _ in range(after_lines):
                await anext(lines)
            disconnected_at = time.monotonic()
            await response.aclose()
            return disconnected_at
        await asyncio.sleep(0.5)
        disconnected_at = time.monotonic()
        sending.cancel()
        return disconnected_at


@pytest.mark.parametrize("path", ["/chat/stream", "/v1/chat/completions"])
async def test_a_client_that_leaves_in_mid_stream(stack: Any, model: ModelServer, path: str) -> None:
    """The connection to the model server is closed within 100 ms after the client disconnects."""
    body = stack.question()
    if path.startswith("/v1"):
        body = {"model": "stub", "messages": [{"role": "user", "content": "Hi"}], "stream": True}
    disconnected_at = await disconnect(stack, path, body, after_lines=8)
    [recorded] = model.requests
    await eventually(lambda: recorded.closed_at is not None, what="the close")
    assert recorded.closed_at is not None
    assert recorded.closed_at - disconnected_at < CLOSED_WITHIN + NOISE
    assert recorded.finished_at is None


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("index", [None, "tides"])
async def test_a_client_that_leaves_before_the_first_token(
    stack: Any, model: ModelServer, stream: bool, index: str | None
) -> None:
    """If the client disconnects before the first token, the connection to the model server is closed as well: for
    streamed and unary answers, with and without retrieval.
    """
    model.script(Answer((b"",), before=(Fault.HANG,)))
    body: dict[str, Any] = {
        "model": "stub",
        "messages": [{"role": "user", "content": "When is high water at Kelsay?"}],
        "stream": stream,
    }
    if index:
        body["index_name"] = index
    disconnected_at = await disconnect(stack, "/v1/chat/completions", body, after_lines=0)
    [recorded] = model.requests
    await eventually(lambda: recorded.closed_at is not None, what="the close")
    assert recorded.closed_at is not None
    assert recorded.closed_at - disconnected_at < CLOSED_WITHIN + NOISE


async def test_a_client_that_stops_reading_stops_the_model(stack: Any, model: ModelServer) -> None:
    """If the client stops reading a long stream, the stack reads no more from the model server than its buffers
    hold.
    """
    token = "x" * 200
    chunk = {"choices": [{"index": 0, "delta": {"content": token}, "finish_reason": None}]}
    piece = b"data: " + json.dumps(chunk).encode() + b"\n\n"
    model.script(Answer((0.0, *(piece,) * 200_000), content_type="text/event-stream"))
    body = {"model": "stub", "messages": [{"role": "user", "content": "Hi"}], "stream": True}
    url = stack.http.base_url
    reader, writer = await asyncio.open_connection(url.host, url.port, limit=1024)
    content = json.dumps(body).encode()
    writer.write(
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n" % len(content) + content
    )
    await reader.readexactly(100)
    before = {name: stack.resources(name).memory_mb for name in ("gateway", "generator")}
    previous, written = -1, 0
    while previous != written:
        previous = written
        await asyncio.sleep(1.0)
        written = model.requests[0].written
    # Socket buffers hold most of these bytes. Without back-pressure, the model server would have written all 50 MB.
    assert written < 16 * 2**20
    assert model.requests[0].finished_at is None
    for name, megabytes in before.items():
        assert stack.resources(name).memory_mb - megabytes < 32, f"{name} keeps data that the client does not read"
    writer.close()
    await writer.wait_closed()
