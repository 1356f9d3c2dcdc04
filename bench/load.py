"""A load of chat completions over persistent connections, which can share a core with the model server."""

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
        first_bytes: The time of each request until the first byte with text.
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
    """Return the value that is greater than a share of all values."""
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
    """Send requests from a number of clients; each client waits for its response.

    Args:
        url: The URL.
        bodies: The bodies of the requests, in rotation.
        clients: The number of connections. Each connection sends at least one request.
        requests: The maximum number of requests.
        seconds: The time after which no request starts.
        sign: The bytes by which the client recognizes the first text of a response.

    Raises:
        RuntimeError: A response has another status than 200, or no text.
    """
    parts = urlsplit(url)
    assert parts.hostname is not None
    head = (
        f"POST {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer unused\r\nContent-Length: "
    ).encode()
    written = itertools.cycle([b"%b%d\r\n\r\n%b" % (head, len(body), body) for body in bodies])
    load = Load()
    left = requests
    end = time.perf_counter() + seconds

    async def client() -> None:
        nonlocal left
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        try:
            first_one = True
            while left > 0 and (first_one or time.perf_counter() < end):
                left -= 1
                first_one = False
                begin = time.perf_counter()
                writer.write(next(written))
                first = await _answer(reader, sign)
                load.durations.append(time.perf_counter() - begin)
                load.first_bytes.append(first - begin)
        finally:
            writer.close()

    begin = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    load.seconds = time.perf_counter() - begin
    return load


async def _answer(reader: asyncio.StreamReader, sign: bytes) -> float:
    """Read one response to its end; return the time of its first text."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    if not head.startswith(b"http/1.1 200"):
        raise RuntimeError(head.decode() + (await reader.read(1000)).decode())
    first: list[float] = []

    def saw(piece: bytes) -> None:
        if not first and (sign in piece or sign.replace(b":", b": ") in piece):
            first.append(time.perf_counter())

    if b"transfer-encoding: chunked" in head:
        await _chunks(reader, saw)
    else:
        length = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
        saw(await reader.readexactly(length))
    if not first:
        raise RuntimeError("a response contains no text")
    return first[0]


async def _chunks(reader: asyncio.StreamReader, saw: Callable[[bytes], None]) -> None:
    while True:
        size = int(await reader.readuntil(b"\r\n"), 16)
        piece = await reader.readexactly(size + 2)
        if size == 0:
            return
        saw(piece)
