"""Sends a load of HTTP requests over persistent connections.

The client needs little CPU, so that it can share a core with the model server.
"""

import asyncio
import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit


@dataclass(slots=True)
class Load:
    """The results of a load. Times are in seconds.

    Attributes:
        durations: The duration of each request, from its first sent to its last received byte.
        first_bytes: The time from the start of each request until the client reads the first text.
        seconds: The duration of the whole load.
    """

    durations: list[float] = field(default_factory=list)
    first_bytes: list[float] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        """Return the requests per second."""
        return len(self.durations) / self.seconds


def percentile(values: Sequence[float], share: float) -> float:
    """Return a percentile of the values: `share` is 0.5 for the median and 1 for the maximum."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


async def run(
    url: str,
    bodies: Sequence[bytes],
    clients: int,
    requests: int,
    *,
    seconds: float = math.inf,
    sign: bytes = b'"content":"w',
) -> Load:
    """Send requests from a number of clients; a client sends its next request when it has the response.

    Args:
        url: The URL.
        bodies: The bodies of the requests, in rotation.
        clients: The number of connections. Each connection sends at least one request, within `requests`.
        requests: The maximum number of requests.
        seconds: The time after which no request starts.
        sign: The bytes by which the client recognizes the first text of a response.

    Raises:
        RuntimeError: The status of a response is not 200, or a response has no text.
    """
    parts = urlsplit(url)
    assert parts.hostname is not None
    head = (
        f"POST {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer unused\r\nContent-Length: "
    ).encode()
    messages = itertools.cycle([b"%b%d\r\n\r\n%b" % (head, len(body), body) for body in bodies])
    load = Load()
    remaining = requests
    end = time.perf_counter() + seconds

    async def client() -> None:
        nonlocal remaining
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        try:
            is_first_request = True
            while remaining > 0 and (is_first_request or time.perf_counter() < end):
                remaining -= 1
                is_first_request = False
                begin = time.perf_counter()
                writer.write(next(messages))
                first_text = await _read_response(reader, sign)
                load.durations.append(time.perf_counter() - begin)
                load.first_bytes.append(first_text - begin)
        finally:
            writer.close()

    begin = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    load.seconds = time.perf_counter() - begin
    return load


async def _read_response(reader: asyncio.StreamReader, sign: bytes) -> float:
    """Read one response to its end; return the time of its first text."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    if not head.startswith(b"http/1.1 200"):
        raise RuntimeError(head.decode() + (await reader.read(1000)).decode())
    first: list[float] = []

    def record(piece: bytes) -> None:
        if not first and (sign in piece or sign.replace(b":", b": ") in piece):
            first.append(time.perf_counter())

    if b"transfer-encoding: chunked" in head:
        await _read_chunks(reader, record)
    else:
        length = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
        record(await reader.readexactly(length))
    if not first:
        raise RuntimeError("a response contains no text")
    return first[0]


async def _read_chunks(reader: asyncio.StreamReader, record: Callable[[bytes], None]) -> None:
    while True:
        size = int(await reader.readuntil(b"\r\n"), 16)
        piece = await reader.readexactly(size + 2)
        if size == 0:
            return
        record(piece)
