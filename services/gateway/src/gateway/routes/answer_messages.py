"""Sends the ASGI messages of streamed answers, and formats the header ``Server-Timing``."""

from starlette.types import Send

from gateway.dialects.exchange import Exchange, Media
from gateway.domain import Step
from gateway.server.responses import STREAM_HEADERS


def server_timing(steps: tuple[Step, ...]) -> bytes:
    """Return the value of a ``Server-Timing`` header (W3C Server Timing), with durations in milliseconds."""
    return ", ".join(f"{step.name.replace(' ', '-')};dur={step.duration_ms:g}" for step in steps).encode()


async def begin_stream(send: Send, media: Media, exchange: Exchange) -> None:
    """Send the status and the headers of a streamed answer."""
    headers = [(b"content-type", media.stream), *STREAM_HEADERS, *exchange.headers]
    await send({"type": "http.response.start", "status": 200, "headers": headers})


async def write(send: Send, body: bytes) -> None:
    """Send a part of a streamed answer; send nothing if it is empty."""
    if body:
        await send({"type": "http.response.body", "body": body, "more_body": True})
