"""A client of the Responses API that measures the delay of each token of a stream."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import httpx
from stamped_model import stamps

_ID = b'"id":"resp_'
_ID_SIZE = 32
_START_SECONDS, _PAUSE = 60.0, 0.1
PATH = "/v1/responses"


@dataclass(slots=True)
class StreamResult:
    """The results of a stream at the client. Times are in seconds.

    Attributes:
        first: The time from the request to the first event.
        delays: The time of each token from the model server to the client.
        body: The events.
    """

    first: float = 0.0
    delays: list[float] = field(default_factory=list)
    body: bytearray = field(default_factory=bytearray)

    @property
    def name(self) -> str:
        """Return the id of the response."""
        at = self.body.index(_ID) + len(_ID) - len("resp_")
        return self.body[at : at + len("resp_") + _ID_SIZE].decode()

    @property
    def events(self) -> int:
        """Return the number of events."""
        return self.body.count(b"\n\n")


async def post(port: int, members: dict[str, Any], *, keep: bool = True) -> StreamResult:
    """Send a streamed request, and return the results."""
    body = json.dumps({"model": "stub", "stream": True, "input": "Tell me something.", **members}).encode()
    return await _read_stream(port, f"POST {PATH}", body, keep)


async def begin(port: int) -> str:
    """Start a background response, and return its id. Retry until the gateway is connected to NATS."""
    body = {"model": "stub", "input": "Tell me something.", "background": True}
    end = time.monotonic() + _START_SECONDS
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=60) as client:
        answer = await client.post(PATH, json=body)
        while answer.status_code == 503 and time.monotonic() < end:
            await asyncio.sleep(_PAUSE)
            answer = await client.post(PATH, json=body)
        return str(answer.raise_for_status().json()["id"])


async def read(port: int, name: str, after: int = -1, *, keep: bool = True, since: int = 0) -> StreamResult:
    """Read the events of a response after an event number.

    Args:
        port: The port of the gateway.
        name: The id of the response.
        after: The number of the last event that the client already has.
        keep: Whether the result contains the events.
        since: Time in nanoseconds. Tokens that were sent earlier have no delay in the result.
    """
    target = f"GET {PATH}/{name}?stream=true&starting_after={after}"
    return await _read_stream(port, target, b"", keep, since)


async def _read_stream(port: int, target: str, body: bytes, keep: bool, since: int = 0) -> StreamResult:
    result = StreamResult()
    begin = time.perf_counter()
    async with aclosing(_pieces(port, target, body)) as pieces:
        async for piece in pieces:
            now = time.perf_counter_ns()
            result.first = result.first or now / 1e9 - begin
            result.delays += [(now - stamp) / 1e9 for stamp in stamps(piece) if stamp >= since]
            if keep:
                result.body += piece
    return result


async def _pieces(port: int, target: str, body: bytes) -> AsyncGenerator[bytes, None]:
    """Yield the chunks of a response in chunked transfer coding; raise an error for any status except 200."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        request_head = f"{target} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        writer.write(request_head.encode() + b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        response_head = await reader.readuntil(b"\r\n\r\n")
        if not response_head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError((response_head + await reader.read(1000)).decode())
        while size := int(await reader.readuntil(b"\r\n"), 16):
            yield (await reader.readexactly(size + 2))[:-2]
    finally:
        writer.close()
