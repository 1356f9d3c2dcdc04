"""The connection to a model server, tested with a recording server."""

import asyncio
import json
import logging
import socket

import pytest
from causeway_testing.links import FixedResponseServer
from causeway_testing.model_answers import (
    DONE,
    FAULTS,
    STREAM,
    Answer,
    Fault,
    chunk,
    completion,
    refusal,
    sse,
    stream,
)
from causeway_testing.model_server import ModelServer as Stub
from causeway_testing.servers import eventually, free_ports
from generator.gathering import Gathering
from generator.openai.endpoint import Endpoint
from generator.openai.reply import Limits
from generator.openai.server import ModelServer
from pydantic import SecretStr
from servicekit.errors import DeadlineExceeded, Unavailable, UpstreamRejected

LIMITS = Limits(connect=1.0, first_byte=0.3, idle=0.3, max_bytes=100_000)
BODY = b'{"stream":true}'


async def read_answer(server: ModelServer, body: bytes = b"{}") -> bytes:
    async with server.chat(body) as reply:
        return await reply.read_all()


async def payloads(server: ModelServer) -> list[bytes]:
    async with server.chat(BODY) as reply:
        found: list[bytes] = []
        while read := await reply.payloads():
            found += read
        return found


@pytest.fixture
async def server(stub: Stub):  # type: ignore[no-untyped-def]  # pytest reads the generator
    server = ModelServer(Endpoint(stub.url, SecretStr("s3cret-key")), LIMITS)
    yield server
    await server.aclose()


class Ticks(Gathering):
    """Make each stream pause from its third read on until the test sets the tick."""

    def __init__(self) -> None:
        super().__init__(0.0)
        self.tick = asyncio.Event()
        self.calls = 0

    def next_tick(self) -> asyncio.Event:
        self.calls += 1
        return self.tick


async def test_tokens_that_arrive_in_a_pause_are_read_together(stub: Stub) -> None:
    """The first tokens arrive at once. The tokens that arrive in a pause are returned together, as separate
    payloads.
    """
    ticks = Ticks()
    server = ModelServer(Endpoint(stub.url), LIMITS, ticks)
    texts = [sse(chunk({"content": text})) for text in "abcdef"]
    gates = [asyncio.Event() for _ in texts]
    steps = [step for pair in zip(gates, texts, strict=True) for step in pair]
    stub.script(Answer((*steps, DONE), content_type=STREAM))
    async with server.chat(BODY) as reply:
        for number in range(2):
            gates[number].set()
            assert len(await reply.payloads()) == 1
        assert ticks.calls == 0
        reading = asyncio.create_task(reply.payloads())
        for gate in gates:
            gate.set()
        await eventually(lambda: stub.requests[0].written >= sum(map(len, texts)))
        assert (ticks.calls, reading.done()) == (1, False)
        ticks.tick.set()
        assert [json.loads(payload)["choices"][0]["delta"]["content"] for payload in await reading] == list("cdef")
        assert await reply.payloads() == []
        assert reply.done
    await server.aclose()


async def test_a_reader_that_is_cancelled_in_a_pause_closes_the_connection(stub: Stub) -> None:
    """A reader that is cancelled in a pause closes the connection."""
    server = ModelServer(Endpoint(stub.url), LIMITS, Ticks())
    stub.script(stream(["a"] * 10_000, pace=0.001))

    async def read() -> None:
        async with server.chat(BODY) as reply:
            while await reply.payloads():
                pass

    reading = asyncio.create_task(read())
    await eventually(lambda: bool(stub.requests) and stub.requests[0].written > 2000)
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    await eventually(lambda: stub.requests[0].closed_at is not None)
    await server.aclose()


async def test_the_body_is_sent_byte_for_byte_with_the_key(stub: Stub, server: ModelServer) -> None:
    """The request has the body byte for byte, the key in its header, and no description of the client's machine."""
    body = b'{ "x" :1.0,\n"y":"\xc3\xa9" }'
    await read_answer(server, body)
    (request,) = stub.requests
    assert (request.method, request.path, request.body) == ("POST", "/v1/chat/completions", body)
    assert request.headers["authorization"] == "Bearer s3cret-key"
    assert request.headers["content-type"] == "application/json"
    assert not [name for name in request.headers if name.startswith("x-stainless")]


class RenewedKey(SecretStr):
    """A key with a new value at each read."""

    calls = 0

    def get_secret_value(self) -> str:
        self.calls += 1
        return f"{super().get_secret_value()}-{self.calls}"


async def test_the_next_request_has_the_renewed_key(stub: Stub) -> None:
    """Each request reads the keys of headers and of the query anew."""
    endpoint = Endpoint(stub.url, RenewedKey("b"), headers={"x-key": RenewedKey("h")}, query={"k": RenewedKey("q")})
    server = ModelServer(endpoint, LIMITS)
    await read_answer(server)
    await read_answer(server)
    first, second = stub.requests
    for name in ("authorization", "x-key"):
        assert first.headers[name] != second.headers[name]
    assert first.path != second.path
    await server.aclose()


async def test_without_a_key_no_credentials_are_sent(stub: Stub) -> None:
    """Without a key, a request has no Authorization header."""
    server = ModelServer(Endpoint(stub.url), LIMITS)
    await read_answer(server)
    assert "authorization" not in stub.requests[0].headers
    await server.aclose()


async def test_the_query_of_the_base_url_is_kept(stub: Stub) -> None:
    """A request keeps the query of the base URL."""
    server = ModelServer(Endpoint(f"{stub.url}/?api-version=2024-10-21"), LIMITS)
    await read_answer(server)
    assert stub.requests[0].path == "/v1/chat/completions?api-version=2024-10-21"
    await server.aclose()


async def test_the_key_is_not_logged(stub: Stub, server: ModelServer, caplog: pytest.LogCaptureFixture) -> None:
    """No log line, error or representation contains the key."""
    caplog.set_level(logging.DEBUG)
    await read_answer(server)
    stub.script(refusal(401, "wrong key"))
    with pytest.raises(UpstreamRejected) as caught:
        await read_answer(server)
    assert "s3cret" not in caplog.text + str(caught.value) + repr(server)


async def test_a_connection_is_reused(stub: Stub, server: ModelServer) -> None:
    """Complete answers and refusals leave the connection for the next request. An abandoned stream closes it."""
    for answer in (completion("a"), stream(["a", "b"]), refusal(400, "no"), stream(["a"], burst=True)):
        stub.script(answer)
        try:
            if answer.content_type.startswith("text/"):
                await payloads(server)
            else:
                await read_answer(server)
        except UpstreamRejected:
            pass
    assert {request.connection for request in stub.requests} == {1}
    stub.script(stream(["a"] * 50, pace=0.01))
    async with server.chat(BODY) as reply:
        await reply.payloads()
    await eventually(lambda: stub.requests[-1].closed_at is not None)
    await read_answer(server)
    assert stub.requests[-1].connection == 2


async def test_a_refusal_keeps_status_body_and_retry_time(stub: Stub, server: ModelServer) -> None:
    """A refusal has the server's status, body and Retry-After."""
    stub.script(refusal(429, "slow down", retry_after=7))
    with pytest.raises(UpstreamRejected) as caught:
        await read_answer(server)
    assert (caught.value.status, caught.value.retry_after) == (429, 7)
    assert json.loads(caught.value.body)["error"]["message"] == "slow down"


async def test_a_refusal_of_any_size_is_read_up_to_a_limit(stub: Stub, server: ModelServer) -> None:
    """A large refusal is truncated. One without an end raises DeadlineExceeded."""
    stub.script(Answer((b"<html>" + b"x" * 10_000_000,), status=500))
    with pytest.raises(UpstreamRejected) as caught:
        await read_answer(server)
    assert 6 < len(caught.value.body) <= 64 * 1024
    stub.script(Answer((b"<html>", Fault.HANG), status=502))
    with pytest.raises(DeadlineExceeded):
        await read_answer(server)


async def test_a_refused_connection_is_unavailable() -> None:
    """A refused connection raises Unavailable with a retry time."""
    server = ModelServer(Endpoint(f"http://127.0.0.1:{free_ports(1)[0]}/v1"), LIMITS)
    with pytest.raises(Unavailable) as caught:
        await read_answer(server)
    assert caught.value.retry_after is not None
    assert not await server.reachable()
    await server.aclose()


async def test_a_silent_server_exceeds_its_time_out(stub: Stub, server: ModelServer) -> None:
    """A server that is silent before or within its answer raises DeadlineExceeded, and the connection is closed."""
    for fault, message in (("fault-hang-before", "begin to answer"), ("fault-hang-mid", "nothing further")):
        stub.script(FAULTS[fault]())
        with pytest.raises(DeadlineExceeded, match=message):
            await payloads(server)
        await eventually(lambda: stub.requests[-1].closed_at is not None)


async def test_silence_in_a_stream_has_its_own_time_out(stub: Stub) -> None:
    """The time-out between two pieces is independent of that for the first one."""
    server = ModelServer(Endpoint(stub.url), Limits(first_byte=600.0, idle=0.3))
    stub.script(FAULTS["fault-hang-mid"]())
    with pytest.raises(DeadlineExceeded, match="nothing further"):
        await payloads(server)
    await server.aclose()


async def test_a_proxy_of_the_environment_is_used(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests use the proxy of the environment, except for the hosts in `no_proxy`."""
    for name in ("http_proxy", "no_proxy"):
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("http_proxy", stub.url.removesuffix("/v1"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    for host, calls in (("model.example", "http://model.example/v1/chat/completions"), ("127.0.0.1", None)):
        server = ModelServer(Endpoint(f"http://{host}/v1"), LIMITS)
        if calls is None:
            with pytest.raises(Unavailable):
                await read_answer(server)
        else:
            await read_answer(server)
            assert stub.requests[-1].path == calls
        await server.aclose()


async def test_the_time_out_does_not_count_the_time_of_the_reader(stub: Stub, server: ModelServer) -> None:
    """The time-out does not count the time that the reader takes."""
    stub.script(stream(["a", "b", "c"]))
    async with server.chat(BODY) as reply:
        count = 0
        while read := await reply.payloads():
            count += len(read)
            await asyncio.sleep(0.4)
    assert count == 6


@pytest.mark.parametrize("fault", ["fault-close-before", "fault-close-mid", "fault-reset-mid", "fault-half-line"])
async def test_a_broken_connection_is_unavailable(stub: Stub, server: ModelServer, fault: str) -> None:
    """A connection that breaks before or within an answer raises Unavailable."""
    stub.script(FAULTS[fault]())
    with pytest.raises(Unavailable):
        await payloads(server)


async def test_sizes_are_bounded(stub: Stub, server: ModelServer) -> None:
    """A body and an event above the limit are refused, and the connections are closed."""
    stub.script(completion("x" * 10_000_000), FAULTS["fault-huge-chunk"]())
    with pytest.raises(Unavailable, match="answer of more than 100000 bytes"):
        await read_answer(server)
    with pytest.raises(Unavailable, match="event of more than 100000 bytes"):
        await payloads(server)
    await eventually(lambda: stub.open_connections == 0)


async def test_windows_come_from_the_servers_list(stub: Stub, server: ModelServer) -> None:
    """The window is in the server's list under any of the known keys. A model without one has 0."""
    stub.models = {
        "a": {"max_model_len": 4096},
        "b": {"context_length": 8192, "name": "x"},
        "c": {"max_model_len": "?"},
    }
    assert [await server.window(name) for name in "abcd"] == [4096, 8192, 0, 0]
    assert await server.reachable()


@pytest.mark.parametrize("listed", [b"no json", b'{"data":[{"id":"\xff"}]}', b'{"data":[{"id":' + b"[" * 50_000])
async def test_an_invalid_list_contains_no_windows(listed: bytes) -> None:
    """A server with an invalid list is reachable, and its models have no known window."""
    async with FixedResponseServer.started() as fixed:
        fixed.response = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(listed), listed)
        server = ModelServer(Endpoint(f"http://127.0.0.1:{fixed.port}/v1"), LIMITS)
        assert await server.window("a") == 0
        assert await server.reachable()
        await server.aclose()


async def test_a_server_whose_list_never_ends_is_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that does not complete its list in time for a check is unreachable, for any idle time-out."""
    monkeypatch.setattr("generator.openai.server._CHECK_SECONDS", 0.2)

    async def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"data":[')
        await reader.read()  # until the client closes the connection
        writer.close()

    async with await asyncio.start_server(begin, "127.0.0.1", 0) as listener:
        port = listener.sockets[0].getsockname()[1]
        server = ModelServer(Endpoint(f"http://127.0.0.1:{port}/v1"), Limits(idle=600.0))
        assert not await server.reachable()
        assert await server.window("a") == 0
        await server.aclose()


async def test_only_the_first_call_waits_for_a_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the first call waits for the window of a silent server."""
    monkeypatch.setattr("generator.openai.server._CHECK_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it accepts connections and never answers
        server = ModelServer(Endpoint(f"http://127.0.0.1:{silent.getsockname()[1]}/v1"), LIMITS)
        assert await server.window("a") == 0
        async with asyncio.timeout(LIMITS.first_byte * 50):
            assert [await server.window("a") for _ in range(100)] == [0] * 100
        await server.aclose()


async def test_a_server_without_a_list_is_reachable(stub: Stub) -> None:
    """A server that answers 404 for its list is reachable."""
    server = ModelServer(Endpoint(stub.url.removesuffix("/v1") + "/other"), LIMITS)
    assert await server.reachable()
    assert await server.window("a") == 0
    await server.aclose()


async def test_closing_leaves_no_connection(stub: Stub) -> None:
    """Closing closes the used connections, and a second call does nothing."""
    server = ModelServer(Endpoint(stub.url), LIMITS)
    await read_answer(server)
    await server.aclose()
    await server.aclose()
    await eventually(lambda: stub.open_connections == 0)
