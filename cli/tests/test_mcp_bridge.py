"""The bridge between standard input and output and a gateway, with a stub of the gateway."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from causeway.cli.mcp_bridge import Bridge
from causeway_testing.servers import eventually

URL = "http://gateway/mcp"


class Gateway:
    """A gateway whose response depends on the method of the message. It records the headers of all requests."""

    def __init__(self) -> None:
        self.headers: list[httpx.Headers] = []
        self.started = asyncio.Event()
        self.stopped = asyncio.Event()
        self.released = asyncio.Event()

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        self.headers.append(request.headers)
        message = json.loads(request.content)
        number = message.get("id")
        match message["method"]:
            case "initialize":
                result = {"protocolVersion": "2025-11-25"}
                return httpx.Response(200, json=answer(number, result), headers={"mcp-session-id": "s1"})
            case "hang":
                self.started.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    self.stopped.set()
            case "wait":
                await self.released.wait()
            case "stream":
                notification = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {}}
                events = "".join(
                    f"event: message\r\ndata: {json.dumps(event)}\r\n\r\n"
                    for event in (notification, answer(number, {}))
                )
                return httpx.Response(
                    200, text=": ping\r\n\r\n" + events, headers={"content-type": "text/event-stream"}
                )
            case "cut":
                return httpx.Response(200, text=": ping\r\n\r\n", headers={"content-type": "text/event-stream"})
            case "cut after progress":
                params = {"progressToken": 1, "result": "half", "error": None}
                notification = {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}
                text = f"data: {json.dumps(notification)}\n\n"
                return httpx.Response(200, text=text, headers={"content-type": "text/event-stream"})
            case "refused":
                error = {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "No key."}}
                return httpx.Response(401, json=error)
            case "error is a text":
                return httpx.Response(500, json={"jsonrpc": "2.0", "id": None, "error": "No key."})
            case "empty":
                return httpx.Response(503)
            case "broken":
                return httpx.Response(502, text="<html>")
            case "not UTF-8":
                return httpx.Response(502, content=b"<html>\xff")
            case "away":
                raise httpx.ConnectError("refused")
            case "notifications/initialized":
                return httpx.Response(202)
        return httpx.Response(200, json=answer(number, {}))


def answer(number: Any, result: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "result": result}


def message(method: str, number: Any = None, **params: Any) -> bytes:
    body = {"jsonrpc": "2.0", "method": method, "params": params}
    return json.dumps(body if number is None else {**body, "id": number}).encode() + b"\n"


async def exchange(gateway: Gateway, *lines: bytes) -> list[Any]:
    """Write lines to the bridge, and return the messages that the bridge writes."""
    written: list[Any] = []

    async def write(line: str) -> None:
        assert "\n" not in line
        written.append(json.loads(line))

    async def read_lines() -> AsyncIterator[bytes]:
        for line in lines:
            yield line
        await eventually(lambda: len(written) >= expected)

    expected = sum(b'"id"' in line or not line.startswith(b"{") for line in lines if line.strip())
    async with httpx.AsyncClient(transport=httpx.MockTransport(gateway)) as http:
        await Bridge(http, URL, write).serve(read_lines())
    return written


async def test_later_messages_use_the_handshake() -> None:
    """After the handshake, requests have the gateway's session id and protocol version in their headers."""
    gateway = Gateway()
    written = await exchange(
        gateway, message("initialize", 1), message("notifications/initialized"), b"\n", message("tools/list", "two")
    )
    assert [response["id"] for response in written] == [1, "two"]
    assert "mcp-session-id" not in gateway.headers[0]
    for headers in gateway.headers[1:]:
        assert (headers["mcp-session-id"], headers["mcp-protocol-version"]) == ("s1", "2025-11-25")


async def test_headers_of_the_modern_protocol() -> None:
    """The headers contain the protocol version, the method and the name of the message."""
    gateway = Gateway()
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}
    await exchange(gateway, message("tools/call", 1, name="search", _meta=meta))
    await exchange(gateway, message("resources/read", 1, uri="causeway://a/b", _meta=meta))
    call, read = gateway.headers
    assert (call["mcp-protocol-version"], call["mcp-method"], call["mcp-name"]) == (
        "2026-07-28",
        "tools/call",
        "search",
    )
    assert read["mcp-name"] == "causeway://a/b"


async def test_each_event_is_a_line() -> None:
    """The bridge writes each event as a line and drops comments."""
    gateway = Gateway()
    written = await exchange(gateway, message("stream", 1))
    assert [response.get("method", response.get("id")) for response in written] == ["notifications/progress", 1]


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("refused", "No key."),
        ("error is a text", "The gateway answers with status 500."),
        ("empty", "The gateway answers with status 503."),
        ("broken", "The gateway answers with status 502."),
        ("not UTF-8", "The gateway answers with status 502."),
        ("away", "http://gateway/mcp does not answer: refused"),
        ("cut", "http://gateway/mcp ended the stream without a result."),
    ],
)
async def test_a_failed_request_gets_an_error(method: str, words: str) -> None:
    """If a request fails, the client gets an error with the id of the request, so that it does not wait."""
    [error] = await exchange(Gateway(), message(method, 7))
    assert (error["id"], error["error"]["message"]) == (7, words)


async def test_a_stream_that_ends_after_a_notification() -> None:
    """A notification is not a response, even if its parameters are named ``result`` and ``error``."""
    gateway = Gateway()
    written: list[Any] = []

    async def write(line: str) -> None:
        written.append(json.loads(line))

    async def read_lines() -> AsyncIterator[bytes]:
        yield message("cut after progress", 7)
        await eventually(lambda: len(written) == 2)

    async with asyncio.timeout(10), httpx.AsyncClient(transport=httpx.MockTransport(gateway)) as http:
        await Bridge(http, URL, write).serve(read_lines())
    progress, error = written
    assert progress["method"] == "notifications/progress"
    assert (error["id"], error["error"]["message"]) == (7, f"{URL} ended the stream without a result.")


async def test_a_line_that_is_not_json() -> None:
    """The bridge answers an invalid line with an error and handles the next line."""
    written = await exchange(Gateway(), b"hello\n", message("tools/list", 1))
    assert sorted((response["id"] is None, response["id"]) for response in written) == [(False, 1), (True, None)]


async def test_a_reused_id_is_cancelled() -> None:
    """If two requests have the same id, a client can cancel the later one after the end of the earlier one."""
    gateway = Gateway()
    written: list[Any] = []

    async def write(line: str) -> None:
        written.append(json.loads(line))

    async def read_lines() -> AsyncIterator[bytes]:
        yield message("wait", 3)
        await eventually(lambda: len(gateway.headers) == 1)
        yield message("hang", 3)
        await gateway.started.wait()
        gateway.released.set()
        await eventually(lambda: len(written) == 1)
        await asyncio.sleep(0)
        yield message("notifications/cancelled", requestId=3)
        await gateway.stopped.wait()

    async with asyncio.timeout(10), httpx.AsyncClient(transport=httpx.MockTransport(gateway)) as http:
        await Bridge(http, URL, write).serve(read_lines())
    assert len(written) == 1


async def test_cancellation_closes_the_connection() -> None:
    """The bridge closes the connection of a cancelled request and writes no response."""
    gateway = Gateway()

    async def write(_line: str) -> None:
        raise AssertionError

    async def read_lines() -> AsyncIterator[bytes]:
        yield message("hang", 3)
        await gateway.started.wait()
        yield message("notifications/cancelled", requestId="3")
        assert not gateway.stopped.is_set()
        yield message("notifications/cancelled", requestId=3)
        await gateway.stopped.wait()

    async with asyncio.timeout(10), httpx.AsyncClient(transport=httpx.MockTransport(gateway)) as http:
        await Bridge(http, URL, write).serve(read_lines())
    assert len(gateway.headers) == 1
