"""The chat routes over real connections, with clients that leave, stop reading or send slowly."""

import asyncio
import contextlib
import http.client
import json
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from typing import Any

import httpx
import pytest
from causeway_testing.gateway.answering import FakeGenerator
from causeway_testing.gateway.retrieval import FakeRetriever
from causeway_testing.servers import eventually
from gateway.domain import Batch, Delta, Finish, SearchResults, Start, Step
from gateway.main import build_app
from gateway.ports.answering import Prompt
from gateway.routes.answer_messages import server_timing
from gateway.settings import Settings
from servicekit.deadline import Deadline
from servicekit.errors import Unavailable
from starlette.types import ASGIApp

QUESTION = {"messages": [{"role": "user", "content": "When does the ferry leave?"}]}
COMPLETION = QUESTION | {"index_name": "docs"}
ROUTES = [
    ("/chat", QUESTION),
    ("/chat/stream", QUESTION),
    ("/v1/chat/completions", COMPLETION),
    ("/v1/chat/completions", COMPLETION | {"stream": True}),
    ("/v1/chat/completions", {"stream": True}),
]
STREAMS = [route for route in ROUTES if "stream" in route[0] + str(route[1])]
END = b"0\r\n\r\n"
"""The last chunk of a response (RFC 9112, 7.1)."""


class Endless(FakeGenerator):
    """A generator that produces text until it is stopped, and records the stop."""

    pace = 0.001
    text = "word "
    sent = 0
    stopped = False

    async def generate(self, prompt: Prompt, deadline: Deadline) -> AsyncGenerator[Batch, None]:
        try:
            yield [Start(b"{}")]
            while True:
                self.sent += len(self.text)
                yield [Delta(0, self.text)]
                await asyncio.sleep(self.pace)
        finally:
            self.stopped = True


class Silent(FakeGenerator):
    """A generator that never produces text, and records the stop."""

    begun = False
    stopped = False

    async def generate(self, prompt: Prompt, deadline: Deadline) -> AsyncGenerator[Batch, None]:
        self.begun = True
        try:
            await asyncio.Event().wait()
            yield []
        finally:
            self.stopped = True


def raw(path: str, body: dict[str, Any]) -> bytes:
    content = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: gateway\r\ncontent-type: application/json\r\n"
    return head.encode() + b"content-length: %d\r\n\r\n" % len(content) + content


@contextlib.asynccontextmanager
async def connection(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


@pytest.fixture
async def start(fakes: Any, settings: Settings, serve: Callable[[ASGIApp], int]) -> Callable[..., int]:
    """Serve the gateway with a generator and settings of the test; return the port."""

    def begin(generator: FakeGenerator, **more: Any) -> int:
        fakes.generator = generator
        return serve(build_app(settings.model_copy(update=more), fakes.services()))

    return begin


@pytest.mark.parametrize(("path", "body"), ROUTES)
async def test_leaving_before_the_first_event_stops_the_model(
    start: Callable[..., int], path: str, body: Any
) -> None:
    """The model stops when the client leaves before the first event."""
    silent = Silent()
    port = start(silent)
    async with connection(port) as (_, writer):
        writer.write(raw(path, body))
        await eventually(lambda: silent.begun)
    await eventually(lambda: silent.stopped)


@pytest.mark.parametrize(
    ("path", "body", "unary"),
    [("/chat", QUESTION, True), ("/chat/stream", QUESTION, False), ("/v1/chat/completions", COMPLETION, True)],
)
async def test_the_model_streams_only_if_the_client_streams(
    client: httpx.AsyncClient, fakes: Any, path: str, body: Any, unary: bool
) -> None:
    """The gateway requests a stream from the model only if the client requests a stream."""
    assert (await client.post(path, json=body)).status_code == 200
    assert [prompt.unary for prompt in fakes.generator.prompts] == [unary]


async def test_leaving_stops_the_retrieval(start: Callable[..., int], fakes: Any) -> None:
    """The retrieval stops when its client leaves."""
    stopped = asyncio.Event()

    class Slow(FakeRetriever):
        async def retrieve(self, *_: Any) -> SearchResults:
            self.queries.append("begun")
            try:
                await asyncio.Event().wait()
            finally:
                stopped.set()
            return SearchResults()

    fakes.retriever = Slow()
    async with connection(start(FakeGenerator.saying("x"))) as (_, writer):
        writer.write(raw("/chat", QUESTION))
        await eventually(lambda: bool(fakes.retriever.queries))
    await asyncio.wait_for(stopped.wait(), 60)


@pytest.mark.parametrize(("path", "body"), ROUTES[:4])
async def test_leaving_during_the_answer_stops_the_model(start: Callable[..., int], path: str, body: Any) -> None:
    """The model stops when the client leaves during the answer, with and without a stream."""
    endless = Endless()
    async with connection(start(endless)) as (_, writer):
        writer.write(raw(path, body))
        await eventually(lambda: endless.sent > 100)
    await eventually(lambda: endless.stopped)


async def test_a_client_that_stops_reading_pauses_the_model(start: Callable[..., int]) -> None:
    """The model pauses while the client does not read, and stops when the client leaves."""
    endless = Endless()
    endless.text, endless.pace = "x" * 4096, 0
    port = start(endless)
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
        client.connect(("127.0.0.1", port))
        client.sendall(raw("/chat/stream", QUESTION))
        sent = -1
        while sent != endless.sent:
            sent = endless.sent
            await asyncio.sleep(0.2)
        assert 0 < sent < 8 * 1024 * 1024
    await eventually(lambda: endless.stopped)


async def test_the_deadline_ends_a_client_that_never_reads(start: Callable[..., int]) -> None:
    """The model stops at the deadline even if a client that does not read is still connected."""
    endless = Endless()
    endless.text, endless.pace = "x" * 4096, 0
    port = start(endless, answer_timeout=0.3)
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
        client.connect(("127.0.0.1", port))
        client.sendall(raw("/chat/stream", QUESTION))
        await eventually(lambda: endless.stopped)


@pytest.mark.parametrize(("path", "body"), ROUTES[1:3])
async def test_the_deadline_applies_if_the_model_ignores_it(
    start: Callable[..., int], path: str, body: Any
) -> None:
    """A request gets the status 504 in the dialect's format if the model ignores the deadline."""
    port = start(Silent(), answer_timeout=0.1)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
        response = await client.post(path, json=body)
    assert response.status_code == 504
    error = response.json()["error"]
    assert "deadline" in (error if path.startswith("/chat") else error["message"])


class Broken(FakeGenerator):
    """A generator that fails unexpectedly, before or after its first text."""

    sends_text = False

    async def generate(self, prompt: Prompt, deadline: Deadline) -> AsyncGenerator[Batch, None]:
        if self.sends_text:
            yield [Delta(0, "At ")]
        raise RuntimeError("internal details")


@pytest.mark.parametrize(("path", "body"), ROUTES)
async def test_an_unexpected_exception_is_a_500_without_details(
    start: Callable[..., int], path: str, body: Any
) -> None:
    """An unexpected exception causes a 500 in the dialect's format, with a trace id and without details."""
    port = start(Broken())
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
        response = await client.post(path, json=body)
    assert response.status_code == 500
    assert "internal details" not in response.text
    error = response.json()["error"]
    assert isinstance(error, str if path.startswith("/chat") else dict)
    assert int(response.headers["x-trace-id"], 16)


@pytest.mark.parametrize(("path", "body"), STREAMS[:2])
async def test_an_unexpected_exception_during_a_stream_is_reported(
    start: Callable[..., int], path: str, body: Any
) -> None:
    """An unexpected exception during a stream is reported to the client.

    A stream of the chat protocol ends normally. A stream in OpenAI's format has neither ``[DONE]`` nor the last
    HTTP chunk, because some clients regard any regular end as the end of a complete answer.
    """
    broken = Broken()
    broken.sends_text = True
    port = start(broken)
    async with connection(port) as (reader, writer):
        writer.write(raw(path, body))
        answer = await asyncio.wait_for(reader.read() if path.startswith("/v1") else reader.readuntil(END), 60)
    assert answer.startswith(b"HTTP/1.1 200")
    assert b"At " in answer
    assert b"unexpected error" in answer
    assert b"internal details" not in answer
    assert b"[DONE]" not in answer
    assert answer.endswith(END) == path.startswith("/chat")


async def test_over_http_1_0_a_broken_stream_ends_with_the_error(start: Callable[..., int]) -> None:
    """A failed stream over HTTP/1.0 ends with the error and without ``[DONE]``."""
    broken = Broken()
    broken.sends_text = True
    async with connection(start(broken)) as (reader, writer):
        request = raw("/v1/chat/completions", COMPLETION | {"stream": True})
        writer.write(request.replace(b"HTTP/1.1", b"HTTP/1.0", 1))
        answer = await asyncio.wait_for(reader.read(), 60)
    assert b"unexpected error" in answer
    assert b"[DONE]" not in answer


async def test_pieces_arrive_one_by_one(start: Callable[..., int]) -> None:
    """The client receives each piece before the model produces the next one."""
    gate = asyncio.Event()
    script: list[Any] = [[Delta(0, "one")], [Delta(0, "two")], [Finish(0, "stop")]]
    async with connection(start(FakeGenerator(script, gate=gate))) as (reader, writer):
        writer.write(raw("/chat/stream", QUESTION))
        await asyncio.wait_for(reader.readuntil(b'"one"'), 60)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.readuntil(b'"two"'), 0.1)
        gate.set()
        await asyncio.wait_for(reader.readuntil(b"\r\n0\r\n\r\n"), 60)


async def test_a_connection_is_reused(start: Callable[..., int], fakes: Any) -> None:
    """A connection accepts the next request after refusals, failures, streams and complete answers."""
    port = start(FakeGenerator.saying("At ", "nine"))
    failing: list[Any] = [[Delta(0, "At ")], Unavailable("gone")]
    good = fakes.generator.script
    requests: list[tuple[str, Any, list[Any], int]] = [
        ("/chat", {}, good, 400),
        ("/chat/stream", QUESTION, good, 200),
        ("/chat/stream", QUESTION, failing, 200),
        ("/chat", QUESTION, failing, 503),
        ("/nowhere", {}, good, 404),
        ("/v1/chat/completions", COMPLETION | {"stream": True}, good, 200),
        ("/chat", {"messages": "x" * 30_000}, good, 413),
        ("/chat", QUESTION, good, 200),
    ]

    def run() -> None:
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        client.connect()
        first_socket = client.sock
        for path, body, script, status in requests:
            fakes.generator.script = script
            client.request("POST", path, json.dumps(body), {"content-type": "application/json"})
            response = client.getresponse()
            assert response.read()
            assert (path, response.status) == (path, status)
            assert response.getheader("x-trace-id")
            assert client.sock is first_socket
        client.close()

    await asyncio.to_thread(run)


async def test_a_body_may_come_in_chunks(port: int) -> None:
    """A body in chunks without a length is accepted."""

    def run() -> int:
        def pieces() -> Iterator[bytes]:
            for byte in json.dumps(QUESTION).encode():
                yield bytes([byte])

        client = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        client.request("POST", "/chat", pieces(), {"content-type": "application/json"}, encode_chunked=True)
        status = client.getresponse().status
        client.close()
        return status

    assert await asyncio.to_thread(run) == 200


async def test_a_body_may_be_slow_but_must_not_stop(start: Callable[..., int]) -> None:
    """A slow body is accepted. A body with a pause above the limit is refused with 504."""
    port = start(FakeGenerator.saying("x"), body_pause=0.3)
    whole = raw("/chat", QUESTION)
    async with connection(port) as (reader, writer):
        for at in range(0, len(whole), 40):
            writer.write(whole[at : at + 40])
            await asyncio.sleep(0.1)
        assert (await asyncio.wait_for(reader.readline(), 60)).startswith(b"HTTP/1.1 200")
    async with connection(port) as (reader, writer):
        writer.write(whole[:-10])
        assert (await asyncio.wait_for(reader.readline(), 60)).startswith(b"HTTP/1.1 504")
        assert b"body did not arrive" in await asyncio.wait_for(reader.readuntil(b"}"), 60)


async def test_leaving_during_the_body_is_no_error(port: int, fakes: Any) -> None:
    """If a client leaves during its body, the model is not called, and the server continues."""
    async with connection(port) as (_, writer):
        writer.write(raw("/chat", QUESTION)[:-10])
        await writer.drain()
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
        assert (await client.post("/chat", json=QUESTION)).status_code == 200
    assert len(fakes.generator.prompts) == 1


@pytest.mark.parametrize("media", ["application/json", "application/json; charset=utf-8", "application/x+json", ""])
async def test_json_is_accepted_with_several_media_types(http: httpx.AsyncClient, media: str) -> None:
    """A JSON body is accepted with several media types, and without a media type."""
    headers = {"content-type": media} if media else {}
    response = await http.post("/chat", content=json.dumps(QUESTION), headers=headers)
    assert response.status_code == 200


@pytest.mark.parametrize("path", ["/chat", "/v1/chat/completions"])
async def test_another_media_type_is_refused(http: httpx.AsyncClient, path: str) -> None:
    """Another media type is refused with 415, and the error names the type."""
    response = await http.post(path, content=b"a=b", headers={"content-type": "application/x-www-form-urlencoded"})
    assert response.status_code == 415
    assert "application/x-www-form-urlencoded" in response.text


def test_server_timing_is_in_milliseconds() -> None:
    """The header has one metric for each step, in milliseconds."""
    steps = (Step("check input", 1.25), Step("generate", 20.0))
    assert server_timing(steps) == b"check-input;dur=1.25, generate;dur=20"
