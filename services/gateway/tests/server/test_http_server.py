import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from causeway_testing.servers import eventually
from gateway.server import http_protocol
from gateway.server.connections import Connections
from gateway.server.http_protocol import HttpLimits
from gateway.server.http_server import HttpServer, listen
from gateway.server.responses import break_off

LIMITS = HttpLimits(size=2000, count=20, seconds=60)
Connect = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Read the body, then respond with the number of headers."""
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"3")]})
    await send({"type": "http.response.body", "body": b"%03d" % len(scope["headers"])})


async def refuse(_: Any, __: Any, send: Any) -> None:
    """Respond before the body is read."""
    await send({"type": "http.response.start", "status": 401, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"no"})


async def broken(scope: Any, _: Any, send: Any) -> None:
    """Send only the beginning of a response."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"A beginning", "more_body": True})
    break_off(scope)


@asynccontextmanager
async def server(limits: HttpLimits = LIMITS, app: Any = echo) -> AsyncIterator[int]:
    with listen("127.0.0.1", 0) as listener:
        running = HttpServer(app, 1, limits)
        serving = asyncio.create_task(running.serve([listener]))
        yield listener.getsockname()[1]
        running.should_exit = running.force_exit = True
        await serving


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    async with server() as port:
        opened = []

        async def one() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            pair = await asyncio.open_connection("127.0.0.1", port)
            opened.append(pair[1])
            return pair

        yield one
        for writer in opened:
            writer.close()


def head(*headers: str, path: str = "/") -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", "host: g", *headers, "", ""]).encode()


async def answer(connect: Connect, *pieces: bytes) -> tuple[int, bytes]:
    """Send the pieces. Return the status and the body of the response."""
    reader, writer = await connect()
    for piece in pieces:
        writer.write(piece)
        await asyncio.sleep(0.01)
    raw = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)
    length = int(raw.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    return int(raw.split()[1]), await asyncio.wait_for(reader.readexactly(length), 60)


@asynccontextmanager
async def stopping(app: Any = echo) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Open a connection to a server, stop the server, and yield the connection, which has sent nothing."""
    connections = Connections(10)
    with listen("127.0.0.1", 0) as listener:
        running = HttpServer(app, 60, LIMITS, connections)
        serving = asyncio.create_task(running.serve([listener]))
        pair = await asyncio.open_connection("127.0.0.1", listener.getsockname()[1])
        await eventually(lambda: len(connections) == 1, what="the connection")
        running.should_exit = True
        await eventually(lambda: listener.fileno() < 0, what="the server's end")
        yield pair
        await asyncio.wait_for(serving, 60)
        pair[1].close()


async def test_a_stopping_server_serves_accepted_connections() -> None:
    """A stopping server serves a request on an accepted connection, and closes the connection."""
    async with stopping() as (reader, writer):
        writer.write(head())
        answered = await asyncio.wait_for(reader.read(), 60)
        assert answered.startswith(b"HTTP/1.1 200 ")
        assert b"connection: close" in answered.lower()


async def test_a_stopping_server_closes_a_silent_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stopping server closes a silent connection before the grace period ends."""
    monkeypatch.setattr(http_protocol, "_FIRST_REQUEST_SECONDS", 0.1)
    async with stopping() as (reader, _):
        assert await asyncio.wait_for(reader.read(), 30) == b""


async def test_requests_within_the_limits_are_served(connect: Connect) -> None:
    """Requests within the limits are served, in one piece or in several."""
    assert await answer(connect, head()) == (200, b"001")
    assert await answer(connect, head(*(f"a{n}: b" for n in range(19)))) == (200, b"020")
    assert (await answer(connect, head("a: " + "b" * 1900)))[0] == 200
    whole = head("a: b", "c: d")
    assert await answer(connect, *(whole[at : at + 7] for at in range(0, len(whole), 7))) == (200, b"003")


@pytest.mark.parametrize(
    "request_",
    [
        head(*(f"a{n}: b" for n in range(20))),
        head("a: " + "b" * 2000),
        head("a" * 2000 + ": b"),
        head("a: " + "b" * 1500, path="/" + "x" * 600),
        head(*("a: " + "b" * 150 for _ in range(15))),
    ],
)
async def test_headers_beyond_the_limits_are_refused(connect: Connect, request_: bytes) -> None:
    """Headers beyond the limits are refused with 431 in JSON, and the connection is closed."""
    status, body = await answer(connect, request_)
    assert status == 431
    error = json.loads(body)
    assert (error["error"]["param"], error["error"]["code"]) == ("headers", "headers_too_large")
    reader, writer = await connect()
    writer.write(request_)
    assert (await asyncio.wait_for(reader.read(), 60)).startswith(b"HTTP/1.1 431")


@pytest.mark.parametrize(
    "request_", [head(path="/" + "x" * 2000), b"GET /" + b"x" * 5000], ids=["complete", "incomplete"]
)
async def test_a_long_target_is_refused(connect: Connect, request_: bytes) -> None:
    """A target that alone exceeds the limit of the head is refused with 414, complete or not."""
    for pieces in ([request_], [request_[at : at + 1000] for at in range(0, len(request_), 1000)]):
        status, body = await answer(connect, *pieces)
        assert status == 414
        error = json.loads(body)["error"]
        assert (error["param"], error["code"]) == ("url", "target_too_long")
        assert error["message"] == "The path and the query of a request may have at most 2000 bytes in total."


async def test_empty_lines_without_a_request_are_refused(connect: Connect) -> None:
    """Empty lines count as part of the head of the next request."""
    assert (await answer(connect, b"\r\n" * 3000))[0] == 431


async def test_an_endless_header_is_refused(connect: Connect) -> None:
    """A header that never ends is refused long before it fills the memory."""
    reader, writer = await connect()
    writer.write(b"GET / HTTP/1.1\r\na: ")
    sent = 0
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):  # noqa: PT012  # the connection may end at any of these lines
        while sent < 100_000_000:
            writer.write(b"b" * 1000)
            sent += 1000
            await writer.drain()
            await asyncio.sleep(0)
            if reader.at_eof():
                raise ConnectionError
    assert sent < 5_000_000


async def test_each_request_of_a_connection_has_its_own_limits(connect: Connect) -> None:
    """The limits apply to each request of a connection separately."""
    reader, writer = await connect()
    for _ in range(5):
        writer.write(head("a: " + "b" * 1500))
        assert (await asyncio.wait_for(reader.readuntil(b"002"), 60)).startswith(b"HTTP/1.1 200")
    body = b"x" * 50_000
    writer.write(head(f"content-length: {len(body)}") + body)  # the limits of the head do not apply to bodies
    assert (await asyncio.wait_for(reader.readuntil(b"002"), 60)).startswith(b"HTTP/1.1 200")
    writer.write(head("a: " + "b" * 2500))
    assert (await asyncio.wait_for(reader.readuntil(b"\r\n"), 60)).startswith(b"HTTP/1.1 431")


@pytest.mark.parametrize("begun", [b"", b"G", b"GET / HTTP/1.1\r\nhost: g\r\n", head() + b"GET / HT"])
async def test_a_silent_connection_is_closed(begun: bytes) -> None:
    """A connection that sends nothing, or no complete head, is closed after a while."""
    async with server(HttpLimits(seconds=0.5)) as port:
        begin = time.monotonic()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(begun)
        await asyncio.wait_for(reader.read(), 60)
        assert time.monotonic() - begin > 0.3
        writer.close()


async def test_slow_bodies_are_not_closed() -> None:
    """The time limit of the head does not apply to the body."""
    async with server(HttpLimits(seconds=0.1)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head("content-length: 2") + b"a")
        await asyncio.sleep(0.4)
        writer.write(b"b")
        assert (await asyncio.wait_for(reader.readline(), 60)).startswith(b"HTTP/1.1 200")
        writer.close()


async def test_other_protocols_are_refused(connect: Connect) -> None:
    """Bytes that are not HTTP are refused with 400."""
    reader, writer = await connect()
    writer.write(b"\x16\x03\x01 nonsense\r\n\r\n")
    assert (await asyncio.wait_for(reader.readline(), 60)).startswith(b"HTTP/1.1 400")


CHUNKED = b"POST / HTTP/1.1\r\nhost: g\r\ntransfer-encoding: chunked\r\n\r\n"


async def sent_before_the_end(port: int, begun: bytes, piece: bytes) -> int:
    """Return the number of bytes that the server accepts before it closes the connection, at most 10,000,000."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(begun)
    sent = 0
    try:
        while sent < 10_000_000 and not reader.at_eof():
            writer.write(piece)
            sent += len(piece)
            await writer.drain()
            await asyncio.sleep(0)
    except ConnectionError:
        pass
    writer.close()
    return sent


@pytest.mark.parametrize("app", [echo, refuse])
@pytest.mark.parametrize(
    ("begun", "piece"),
    [(b"0\r\n", b"a: " + b"b" * 995 + b"\r\n"), (b"0\r\na: ", b"b" * 1000), (b"1;", b"b" * 1000)],
)
async def test_trailers_and_chunk_extensions_are_bounded(app: Any, begun: bytes, piece: bytes) -> None:
    """The size of trailers and chunk extensions is limited, for a waiting and for a refused request."""
    async with server(app=app) as port:
        assert await sent_before_the_end(port, CHUNKED + begun, piece) < 5_000_000


async def test_trailers_are_skipped(connect: Connect) -> None:
    """Trailers are skipped, and the next request of the connection is served."""
    reader, writer = await connect()
    for _ in range(2):
        writer.write(CHUNKED + b"1\r\nx\r\n0\r\nauthorization: a\r\nb: c\r\n\r\n")
        assert (await asyncio.wait_for(reader.readuntil(b"002"), 60)).startswith(b"HTTP/1.1 200")


async def test_long_bodies_in_small_chunks_are_served(connect: Connect) -> None:
    """A long body in very small chunks is served."""
    reader, writer = await connect()
    writer.write(CHUNKED + b"1\r\nx\r\n" * 20_000 + b"0\r\n\r\n")
    assert (await asyncio.wait_for(reader.readuntil(b"002"), 60)).startswith(b"HTTP/1.1 200")


async def test_many_requests_in_one_piece_are_served(connect: Connect) -> None:
    """Many requests in one piece are served, even if they together exceed the limit of one head."""
    reader, writer = await connect()
    writer.write(head("a: " + "b" * 500) * 40 + CHUNKED + b"1\r\nx\r\n")
    for _ in range(40):
        assert (await asyncio.wait_for(reader.readuntil(b"002"), 60)).startswith(b"HTTP/1.1 200")
    writer.write(b"0\r\n\r\n")
    assert (await asyncio.wait_for(reader.readuntil(b"002"), 60)).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("rest", [b"", b"a", b"a" * 99 + b"b"])
async def test_the_connection_of_a_refused_client_is_closed(rest: bytes) -> None:
    """The connection of a refused client is closed if the client does not send the rest of its body."""
    async with server(HttpLimits(seconds=0.5), refuse) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head("content-length: 100"))
        assert (await asyncio.wait_for(reader.readuntil(b"no"), 60)).startswith(b"HTTP/1.1 401")
        writer.write(rest)
        assert await asyncio.wait_for(reader.read(), 60) == b""
        writer.close()


async def test_a_refused_client_can_send_another_request() -> None:
    """The rest of a refused body is skipped, and the next request is served."""
    async with server(HttpLimits(seconds=60), refuse) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(3):
            writer.write(head("content-length: 100000"))
            assert (await asyncio.wait_for(reader.readuntil(b"no"), 60)).startswith(b"HTTP/1.1 401")
            writer.write(b"a" * 100_000)
        writer.close()


async def test_a_client_that_does_not_read_is_disconnected() -> None:
    """A client that does not read is disconnected after a while. A slow reader receives the whole response."""
    ended = asyncio.Event()

    async def answers(_: Any, __: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(16):
            await send({"type": "http.response.body", "body": b"x" * 1_000_000, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
        ended.set()

    async with server(HttpLimits(pause=0.5), answers) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head())
        read = 0
        while read < 16_000_000:
            piece = await asyncio.wait_for(reader.read(8_000_000), 60)
            assert piece
            read += len(piece)
            await asyncio.sleep(0.001)
        writer.close()
        await asyncio.wait_for(ended.wait(), 60)
        ended.clear()
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head())
        await asyncio.wait_for(ended.wait(), 60)
        writer.close()


async def test_an_aborted_response_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A response that the application aborts causes no line in the server's log."""
    async with server(app=broken) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head())
        raw = await asyncio.wait_for(reader.read(), 60)
        writer.close()
    assert raw.endswith(b"b\r\nA beginning\r\n")
    assert caplog.records == []
