import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from causeway_testing.gateway.answering import FakeGenerator
from causeway_testing.servers import eventually
from gateway.main import build_app
from gateway.routes.heartbeat import Heartbeat
from gateway.settings import Settings
from starlette.types import ASGIApp, Message


async def test_heartbeats_are_sent_during_silence() -> None:
    """Heartbeats are sent while nothing else is sent, and stop at the end of the stream."""
    sent: list[bytes] = []
    three_sent = asyncio.Event()

    async def send(message: Message) -> None:
        sent.append(message["body"])
        if sent[-3:] == [b":"] * 3:
            three_sent.set()

    async with Heartbeat(send, b":", 0.01) as beating:
        await beating.send({"type": "http.response.body", "body": b"a", "more_body": True})
        await three_sent.wait()
    count = len(sent)
    await asyncio.sleep(0.05)
    assert sent == [b"a", *[b":"] * (count - 1)]


async def test_at_most_one_heartbeat_waits() -> None:
    """At most one heartbeat waits for a client that does not read."""
    begun: list[Message] = []

    async def send(message: Message) -> None:
        begun.append(message)
        await asyncio.Event().wait()

    async with Heartbeat(send, b":", 0.01):
        await eventually(lambda: bool(begun))
        await asyncio.sleep(0.1)
    assert len(begun) == 1


async def test_a_protocol_without_heartbeats_sends_none() -> None:
    """Nothing is sent for a protocol without heartbeats."""
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async with Heartbeat(send, b"", 0.001):
        await asyncio.sleep(0.05)
    assert sent == []


@pytest.mark.parametrize(
    ("path", "beat", "body"),
    [
        ("/v1/chat/completions", b": \n\n", {"model": "m", "stream": True}),
        ("/chat/stream", b"\n", {}),
    ],
)
async def test_streams_send_heartbeats(
    path: str, beat: bytes, body: dict[str, Any], fakes: Any, settings: Settings, serve: Callable[[ASGIApp], int]
) -> None:
    """A stream sends heartbeats while the model is silent. They do not change the text of the answer."""
    question = body | {"messages": [{"role": "user", "content": "When does it open?"}]}
    texts = []
    for interval in (0.05, 3600.0):
        resume = asyncio.Event()
        fakes.generator = FakeGenerator(FakeGenerator.words("At ", "nine"), gate=resume)
        if interval > 1:
            resume.set()
        port = serve(build_app(settings.model_copy(update={"stream_heartbeat": interval}), fakes.services()))
        async with (
            httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client,
            client.stream("POST", path, json=question) as response,
        ):
            assert response.status_code == 200
            received: list[bytes] = []
            async for piece in response.aiter_raw():
                received.append(piece)
                if received.count(beat) == 2:
                    resume.set()
        assert (received.count(beat) >= 2) == (interval < 1)
        texts.append(words(b"".join(piece for piece in received if piece != beat)))
    assert texts == ["At nine", "At nine"]


def words(stream: bytes) -> str:
    """Return the text of an answer in either dialect."""
    lines = [line.removeprefix(b"data: ") for line in stream.splitlines()]
    objects = [json.loads(line) for line in lines if line.startswith(b"{")]
    deltas = [event["choices"][0]["delta"] if event.get("choices") else event.get("delta", {}) for event in objects]
    return "".join(delta.get("content") or "" for delta in deltas)
