"""A model server for tests and benchmarks. It answers chat completions with a script, and records its requests.

It speaks HTTP/1.1 on a real socket, so that tests can observe how a client treats a connection, for example that it
closes the connection or stops reading. In a test::

    async with ModelServer.started() as server:
        server.script(stream(["Hel", "lo"], pace=0.01), refusal(429, "slow down", retry_after=3))
        ...
        assert server.requests[0].json()["stream"] is True

As a process, for benchmarks and for tests of whole stacks (see ``--help``)::

    python -m causeway_testing.model_server --port 9000 --tokens 64 --pace 0.01

When the script is empty, a request whose ``model`` is a key of `model_answers.FAULTS` gets this fault. So a test
can also select a fault through other services.
"""

import argparse
import asyncio
import contextlib
import json
import time
from collections import deque
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import uvloop

from causeway_testing.model_answers import (
    FAULTS,
    STREAM,
    Answer,
    Fault,
    Step,
    completion,
    embeddings,
    refusal,
    stream,
)

_HEAD_END = b"\r\n\r\n"
_MAX_REQUESTS = 10_000
_DIMENSION = 256
_WRITE_BUFFER = 64 * 1024


@dataclass(slots=True)
class RecordedRequest:
    """A request and its answer. Times are in seconds of `time.monotonic`.

    Attributes:
        connection: The number of the connection, from 1.
        at: The time at which the request arrived.
        written: The number of the answer's bytes that the server has written so far.
        finished_at: The time at which the answer was complete, or the server closed the connection.
        closed_at: The time at which the client closed the connection, if the answer was incomplete.
    """

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    connection: int
    at: float
    written: int = 0
    finished_at: float | None = None
    closed_at: float | None = None

    def json(self) -> Any:
        """Return the parsed body."""
        return json.loads(self.body)


@lru_cache
def _default_answer(tokens: int, pace: float, streamed: bool, usage: bool) -> Answer:
    words = [f"word{number} " for number in range(tokens)]
    if streamed:
        return stream(words, pace=pace, usage=usage, burst=not pace)
    answer = completion("".join(words), tokens=tokens)
    return Answer(answer.body, before=(pace * tokens,)) if pace else answer


class ModelServer:
    """The server.

    A request for embeddings gets vectors with 256 numbers, or as many as it requests. It does not use the script.

    Attributes:
        requests: The last ten thousand requests except GET requests, oldest first.
        models: The models of ``GET /v1/models`` by name, with the members of each entry except ``id``.
    """

    def __init__(self, *, tokens: int = 4, pace: float = 0.0) -> None:
        self.requests: deque[RecordedRequest] = deque(maxlen=_MAX_REQUESTS)
        self.models: dict[str, dict[str, Any]] = {"stub": {}}
        self.open_connections = 0
        self._tokens = tokens
        self._pace = pace
        self._script: deque[Answer] = deque()
        self._connections: set[_Connection] = set()
        self._number = 0
        self._server: asyncio.Server | None = None

    @classmethod
    @contextlib.asynccontextmanager
    async def started(cls, *, tokens: int = 4, pace: float = 0.0) -> AsyncIterator["ModelServer"]:
        """Start a server on a free port of the loopback interface."""
        server = cls(tokens=tokens, pace=pace)
        await server.start()
        try:
            yield server
        finally:
            await server.stop()

    @property
    def port(self) -> int:
        """Return the port of the server."""
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def url(self) -> str:
        """Return the base URL for OpenAI's clients."""
        return f"http://127.0.0.1:{self.port}/v1"

    def script(self, *answers: Answer) -> None:
        """Add answers for the next chat requests."""
        self._script.extend(answers)

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Start to listen. Port 0 selects a free port."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self), host, port)

    async def stop(self) -> None:
        """Close the socket and every connection."""
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.abort()
        await asyncio.sleep(0)
        if self._server is not None:
            await self._server.wait_closed()

    def opened(self, connection: "_Connection") -> int:
        """Record a new connection, and return its number."""
        self._connections.add(connection)
        self.open_connections += 1
        self._number += 1
        return self._number

    def lost(self, connection: "_Connection") -> None:
        """Record the end of a connection."""
        self._connections.discard(connection)
        self.open_connections -= 1

    def answer(self, request: RecordedRequest) -> Answer:
        """Return the answer to a request."""
        if request.method == "GET":
            return self._about(request)
        self.requests.append(request)
        embeds = request.path.endswith("/embeddings")
        if self._script and not embeds:
            return self._script.popleft()
        try:
            document = json.loads(request.body)
            fault = FAULTS.get(document.get("model"))
        except (ValueError, AttributeError):
            return refusal(400, "The body is not a JSON object.")
        if fault is not None:
            return fault()
        if embeds:
            return embeddings(document["input"], document.get("dimensions", _DIMENSION))
        options = document.get("stream_options") or {}
        return _default_answer(
            self._tokens, self._pace, document.get("stream") is True, options.get("include_usage") is True
        )

    def _about(self, request: RecordedRequest) -> Answer:
        if request.path == "/v1/models":
            entries = [{"id": name, "object": "model", **members} for name, members in self.models.items()]
            return Answer((json.dumps({"object": "list", "data": entries}).encode(),))
        if request.path == "/health":
            return Answer((b"{}",))
        if request.path == "/requests":
            return Answer((json.dumps([_to_json(each) for each in self.requests]).encode(),))
        return refusal(404, "There is no such path.")


class _Connection(asyncio.Protocol):
    """A connection. It answers its requests in order, each in its own task."""

    def __init__(self, server: ModelServer) -> None:
        self._server = server
        self._buffer = bytearray()
        self._current: RecordedRequest | None = None
        self._task: asyncio.Task[None] | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._transport: asyncio.Transport | None = None
        self._number = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's transports are no subclasses
        self._transport.set_write_buffer_limits(_WRITE_BUFFER)
        self._number = self._server.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:  # asyncio's signature
        self._server.lost(self)
        if self._current is not None and self._current.finished_at is None:
            self._current.closed_at = time.monotonic()
        if self._task is not None:
            self._task.cancel()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._next()

    def abort(self) -> None:
        """Reset the connection."""
        if self._transport is not None:
            self._transport.abort()

    def _next(self) -> None:
        if self._task is not None:
            return
        request = self._parse()
        if request is not None:
            self._current = request
            self._task = asyncio.ensure_future(self._respond(request))

    def _parse(self) -> RecordedRequest | None:
        end = self._buffer.find(_HEAD_END)
        if end < 0:
            return None
        lines = self._buffer[:end].decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        start = end + len(_HEAD_END)
        stop = start + int(headers.get("content-length", 0))
        if len(self._buffer) < stop:
            return None
        method, path, _ = lines[0].split(" ", 2)
        body = bytes(self._buffer[start:stop])
        del self._buffer[:stop]
        return RecordedRequest(method, path, headers, body, self._number, time.monotonic())

    async def _respond(self, request: RecordedRequest) -> None:
        answer = self._server.answer(request)
        if not (await self._run(request, answer.before, False) and await self._send(request, answer)):
            return
        request.finished_at = time.monotonic()
        self._current = self._task = None
        self._next()

    async def _send(self, request: RecordedRequest, answer: Answer) -> bool:
        whole = [step for step in answer.body if isinstance(step, bytes)]
        plain = len(whole) == len(answer.body) and answer.content_type != STREAM
        head = [f"HTTP/1.1 {answer.status} Scripted", f"content-type: {answer.content_type}"]
        head += [f"{name}: {value}" for name, value in answer.headers.items()]
        head.append(f"content-length: {sum(map(len, whole))}" if plain else "transfer-encoding: chunked")
        start = "\r\n".join(head).encode() + _HEAD_END
        if plain:
            return await self._write(request, start + b"".join(whole))
        await self._write(request, start)
        if not await self._run(request, answer.body, True):
            return False
        return await self._write(request, b"0\r\n\r\n")

    async def _run(self, request: RecordedRequest, steps: Iterable[Step], chunked: bool) -> bool:
        """Execute the steps; return False if a step ended the connection."""
        for step in steps:
            if isinstance(step, bytes):
                await self._write(request, b"%x\r\n%b\r\n" % (len(step), step) if chunked else step)
            elif isinstance(step, Fault):
                await self._fail(step)
                return False
            elif isinstance(step, asyncio.Event):
                await step.wait()
            else:
                await asyncio.sleep(step)
        return True

    async def _write(self, request: RecordedRequest, data: bytes) -> bool:
        await self._writable.wait()
        assert self._transport is not None
        self._transport.write(data)
        request.written += len(data)
        return True

    async def _fail(self, fault: Fault) -> None:
        assert self._transport is not None
        if fault is Fault.HANG:
            await asyncio.Event().wait()
        if self._current is not None:
            self._current.finished_at = time.monotonic()  # the server closed the connection, not the client
        if fault is Fault.RESET:
            self._transport.abort()
        else:
            self._transport.close()


def _to_json(request: RecordedRequest) -> dict[str, Any]:
    return {
        "method": request.method,
        "path": request.path,
        "headers": request.headers,
        "body": request.body.decode("utf-8", "replace"),
        "connection": request.connection,
        "at": request.at,
        "written": request.written,
        "finished_at": request.finished_at,
        "closed_at": request.closed_at,
    }


def main() -> None:
    """Serve until the process is killed, and print the base URL once the server listens."""
    parser = argparse.ArgumentParser(
        prog="python -m causeway_testing.model_server",
        description="A model server with the same answer to every request. GET /requests returns its requests.",
        epilog="example: python -m causeway_testing.model_server --port 9000 --tokens 64 --pace 0.01",
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: loopback)")
    parser.add_argument("--port", type=int, default=0, help="port to listen on (default: a free one)")
    parser.add_argument("--tokens", type=int, default=64, help="words of an answer (default: 64)")
    parser.add_argument("--pace", type=float, default=0.0, help="seconds between tokens (default: 0, all at once)")
    arguments = parser.parse_args()

    async def serve() -> None:
        server = ModelServer(tokens=arguments.tokens, pace=arguments.pace)
        await server.start(arguments.host, arguments.port)
        print(server.url, flush=True)  # noqa: T201  # the caller reads the address
        await asyncio.Event().wait()

    with contextlib.suppress(KeyboardInterrupt):
        uvloop.run(serve())


if __name__ == "__main__":
    main()
