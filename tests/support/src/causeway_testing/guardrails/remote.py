"""A detector server for tests over real HTTP. It records its requests, and can fail."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from aiohttp import web


@dataclass
class ReceivedRequest:
    """A request that the detector server received. The names of headers are in lower case."""

    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]


@dataclass
class DetectorStub:
    """A detector server that finds a phrase in ``contents``, and answers other requests with ``flat``.

    Attributes:
        phrase: The text to find.
        flat: The response to requests without ``contents``.
        status: The status of responses. The body of an error has the form of the detector API.
        raw: The body of responses instead of the findings, or None.
        gate: The event that each response awaits.
        drops: How many of the next requests get no response: the server aborts their connections.
        requests: The received requests.
        cancelled: The number of cancelled requests.
        running: The number of running requests.
        max_running: The maximum of ``running``.
        url: The URL of the server.
    """

    phrase: str = "secret"
    flat: list[dict[str, Any]] = field(default_factory=list)
    status: int = 200
    raw: bytes | None = None
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    drops: int = 0
    requests: list[ReceivedRequest] = field(default_factory=list)
    cancelled: int = 0
    running: int = 0
    max_running: int = 0
    url: str = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer a request."""
        body = await request.json()
        self.requests.append(
            ReceivedRequest(request.path, {name.lower(): value for name, value in request.headers.items()}, body)
        )
        if self.drops:
            self.drops -= 1
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        self.running += 1
        self.max_running = max(self.max_running, self.running)
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.running -= 1
        if self.status != 200:
            return web.json_response({"code": self.status, "message": "a scripted failure"}, status=self.status)
        found = [self._found(text) for text in body["contents"]] if "contents" in body else self.flat
        return web.Response(body=msgspec.json.encode(found) if self.raw is None else self.raw)

    def _found(self, text: str) -> list[dict[str, Any]]:
        start = text.find(self.phrase)
        if start < 0:
            return []
        end = start + len(self.phrase)
        return [
            {
                "start": start,
                "end": end,
                "text": text[start:end],
                "detection_type": "scripted",
                "detection": "phrase",
                "score": 0.8,
                "evidence": [{"name": "why"}],
            }
        ]


@contextlib.asynccontextmanager
async def detector_server(stub: DetectorStub) -> AsyncIterator[DetectorStub]:
    """Serve a stub on a free port, with its gate set."""
    stub.gate.set()
    app = web.Application()

    async def health(_: web.Request) -> web.Response:
        return web.Response(status=stub.status)

    app.add_routes([web.post("/{path:.*}", stub.answer), web.get("/health", health)])
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        stub.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield stub
    finally:
        await runner.cleanup()
