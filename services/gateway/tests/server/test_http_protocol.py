"""The framing of requests: the end of a body and the start of the next request."""

import asyncio
import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import uvicorn
from gateway.server.connections import Connections
from gateway.server.http_protocol import HttpLimits, HttpProtocol
from hypothesis import given, settings
from hypothesis import strategies as st
from uvicorn.server import ServerState

SMUGGLED = b"DELETE /indexes/theirs HTTP/1.1\r\nHost: g\r\nX: "
UPGRADES = (
    (),
    (b"Connection: Upgrade", b"Upgrade: websocket"),
    (b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAEAAEAA"),
    (b"connection: keep-alive, upgrade", b"upgrade: anything"),
    (b"Upgrade: websocket",),
    (b"Connection: Upgrade",),
)


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Respond with the request line and the digest of the body."""
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    answer = answer_to(scope["method"].encode(), scope["path"].encode(), body)
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(answer))]}
    )
    await send({"type": "http.response.body", "body": answer})


def answer_to(method: bytes, path: bytes, body: bytes) -> bytes:
    return b"<%b %b %b>" % (method, path, hashlib.sha256(body).hexdigest()[:8].encode())


class Wire(asyncio.Transport):
    """A transport that collects the bytes that a client would read."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closed = self.ended = False

    def write(self, data: Any) -> None:
        if not self.closed:
            self.written += data

    def close(self) -> None:
        self.closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


@dataclass
class Request:
    method: bytes = b"POST"
    path: bytes = b"/"
    headers: Sequence[bytes] = ()
    body: bytes = b""
    chunks: int = 0
    """The size of the body's chunks; 0: the body has a Content-Length."""
    version: bytes = b"1.1"
    host: Sequence[bytes] = field(default=(b"Host: g",))

    @property
    def raw(self) -> bytes:
        headers = [*self.host, *self.headers]
        body = self.body
        if self.chunks:
            headers.append(b"Transfer-Encoding: chunked")
            pieces = (body[at : at + self.chunks] for at in range(0, len(body), self.chunks))
            body = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
        elif body:
            headers.append(b"Content-Length: %d" % len(body))
        head = b"\r\n".join([b"%b %b HTTP/%b" % (self.method, self.path, self.version), *headers, b"", b""])
        return head + body

    @property
    def answer(self) -> bytes:
        return answer_to(self.method, self.path, self.body)


async def exchange(pieces: Iterable[bytes], app: Any = echo) -> Wire:
    """Send the pieces over one connection. Return the transport with the received bytes."""
    config = uvicorn.Config(app, ws="none", lifespan="off", log_config=None, access_log=False)
    config.load()
    protocol = HttpProtocol(
        HttpLimits(size=100_000), Connections(10), config=config, server_state=ServerState(), app_state={}
    )
    wire = Wire()
    protocol.connection_made(wire)
    for piece in pieces:
        protocol.data_received(piece)
        for _ in range(3):
            await asyncio.sleep(0)
    for _ in range(20):
        await asyncio.sleep(0)
    wire.ended = wire.closed
    protocol.connection_lost(None)
    return wire


def answers(written: bytes) -> list[bytes]:
    return [b"<" + part.split(b">")[0] + b">" for part in written.split(b"\r\n\r\n<")[1:]]


def split(data: bytes, cuts: Iterable[int]) -> list[bytes]:
    at = sorted({cut for cut in cuts if 0 < cut < len(data)})
    return [data[start:end] for start, end in zip([0, *at], [*at, len(data)], strict=True)]


@pytest.mark.parametrize("upgrade", UPGRADES)
@pytest.mark.parametrize("chunks", [0, 1000])
async def test_a_body_is_never_the_next_request(upgrade: Sequence[bytes], chunks: int) -> None:
    """A body is not read as the next request, with any upgrade header and any split into two pieces."""
    requests = [
        Request(headers=upgrade, body=SMUGGLED, chunks=chunks),
        Request(path=b"/admin", headers=[b"Authorization: Bearer key"]),
    ]
    data = b"".join(request.raw for request in requests)
    for cut in range(1, len(data)):
        wire = await exchange(split(data, [cut]))
        assert answers(wire.written) == [request.answer for request in requests], cut


requests = st.builds(
    Request,
    method=st.sampled_from([b"POST", b"GET", b"PUT", b"DELETE"]),
    path=st.integers(0, 9).map(lambda number: b"/%d" % number),
    headers=st.sampled_from(UPGRADES),
    body=st.sampled_from([b"", b"x", SMUGGLED, SMUGGLED * 3, b"0\r\n\r\n", b"GET / HTTP/1.1\r\nHost: g\r\n\r\n"]),
    chunks=st.sampled_from([0, 0, 1, 7, 1000]),
)


@settings(max_examples=300)
@given(st.lists(requests, min_size=1, max_size=4), st.lists(st.integers(1, 600), max_size=6))
def test_each_request_gets_its_own_answer(sent: list[Request], cuts: list[int]) -> None:
    """Each request of a connection gets its own response, in order, with any split of the bytes."""
    data = b"".join(request.raw for request in sent)
    with asyncio.Runner() as runner:
        wire = runner.run(exchange(split(data, cuts)))
    assert answers(wire.written) == [request.answer for request in sent]
    assert wire.written.count(b"HTTP/1.1 ") == len(sent)


async def refusal(data: bytes) -> tuple[int, str | None, Wire]:
    """Return the status and the field of a refusal."""
    wire = await exchange([data])
    head, _, body = wire.written.partition(b"\r\n\r\n")
    assert b"connection: close" in head
    assert wire.ended
    return int(head.split()[1]), json.loads(body)["error"]["param"], wire


@pytest.mark.parametrize(
    ("request_", "status", "field"),
    [
        (Request(host=()), 400, "host"),
        (Request(host=(b"Host: a", b"Host: b")), 400, "host"),
        (Request(host=(b"Host: a", b"Host: a")), 400, "host"),
        (Request(host=(b"Host: a/b",)), 400, "host"),
        (Request(host=(b"Host: a@b",)), 400, "host"),
        (Request(host=(b"Host: a b",)), 400, "host"),
        (Request(host=(b"Host: a:b",)), 400, "host"),
        (Request(host=(b"Host: a", b"Host: b"), version=b"1.0"), 400, "host"),
        (Request(headers=[b"Transfer-Encoding: gzip, chunked"]), 501, "transfer-encoding"),
        (Request(headers=[b"Transfer-Encoding: gzip", b"Transfer-Encoding: chunked"]), 501, "transfer-encoding"),
        (Request(headers=[b"Transfer-Encoding: identity"]), 501, "transfer-encoding"),
        (Request(headers=[b"Transfer-Encoding: chunked"], version=b"1.0"), 400, "transfer-encoding"),
        (Request(headers=[b"Transfer-Encoding: chunked", b"Content-Length: 3"]), 400, None),
        (Request(headers=[b"Content-Length: 3", b"Content-Length: 4"]), 400, None),
        (Request(version=b"2.0"), 505, None),
        (Request(version=b"0.9"), 505, None),
        (Request(method=b"CONNECT", path=b"example.org:443"), 501, None),
        (Request(headers=[b"no colon"]), 400, None),
    ],
)
async def test_ambiguous_framing_is_refused(request_: Request, status: int, field: str | None) -> None:
    """A request with ambiguous framing is refused, and the connection is closed. Later bytes are not parsed."""
    actual_status, actual_field, wire = await refusal(request_.raw + Request(path=b"/next").raw)
    assert (actual_status, actual_field) == (status, field)
    assert b"/next" not in wire.written


@pytest.mark.parametrize("host", [b"", b"a", b"a.example:8080", b"[::1]:80", b"127.0.0.1", b"a_b:"])
async def test_hosts_are_names_or_addresses(host: bytes) -> None:
    """The host is a name or an address with an optional port, and may be empty."""
    wire = await exchange([Request(host=(b"Host: " + host,)).raw])
    assert answers(wire.written) == [Request().answer]


async def test_space_around_a_value_is_ignored() -> None:
    """Space around a header's value is ignored."""
    wire = await exchange([Request(headers=[b"Content-Length: 3 \t"]).raw + b"abc"])
    assert answers(wire.written) == [answer_to(b"POST", b"/", b"abc")]


async def test_a_refusal_waits_for_earlier_answers() -> None:
    """A refusal waits until the response to the earlier request of the connection is complete."""
    gate = asyncio.Event()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        await gate.wait()
        await send({"type": "http.response.body", "body": b"whole"})

    def pieces() -> Iterator[bytes]:
        yield Request(b"GET").raw + Request(host=()).raw
        gate.set()
        yield b"more"

    wire = await exchange(pieces(), slow)
    assert wire.written.count(b"HTTP/1.1 ") == 1
    assert wire.written.endswith(b"5\r\nwhole\r\n0\r\n\r\n")
    assert wire.ended


@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
async def test_chunks_are_for_http_1_1(version: bytes) -> None:
    """A response of unknown length has chunks in HTTP/1.1, and ends with the connection in HTTP/1.0."""

    async def unknown(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"one", "more_body": True})
        await send({"type": "http.response.body", "body": b"two"})

    wire = await exchange([Request(b"GET", version=version).raw], unknown)
    head, _, body = wire.written.partition(b"\r\n\r\n")
    assert (b"transfer-encoding: chunked" in head) == (version == b"1.1")
    assert (body == b"onetwo") == (version == b"1.0")
    assert wire.ended == (version == b"1.0")


async def test_http_1_0_gets_no_interim_response() -> None:
    """A client of HTTP/1.0 gets no interim response to `Expect`."""
    wire = await exchange([Request(headers=[b"Expect: 100-continue"], body=b"x", version=b"1.0").raw])
    assert wire.written.startswith(b"HTTP/1.1 200")
