"""Another gateway continues the background responses of a killed one."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from causeway.generator.v1 import generator_pb2 as pb
from causeway.generator.v1 import generator_pb2_grpc
from causeway_testing import responses
from causeway_testing.gateway.process import gateway, generator_server
from causeway_testing.servers import eventually, nats_server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]  # it starts processes

PATH = "/v1/responses"
SILENT, QUOTING, SPEAKING = "silent", "quoting", "speaking"
"""Models: `silent` hangs before the first word of its first answer, the others after it. `quoting` only quotes."""
READY_SECONDS = 60.0
TAKEOVER_SECONDS = 30.0
WORDS = ("At ", "nine ", "sharp.")


class Generator(generator_pb2_grpc.GeneratorServiceServicer):
    """Hangs in the first answer of each model, and completes the later answers.

    Attributes:
        called_models: The models in the order of the calls.
    """

    def __init__(self) -> None:
        self.called_models: list[str] = []

    async def Generate(self, request: Any, context: Any) -> AsyncGenerator[pb.GenerateResponse, None]:  # noqa: N802  # the contract's name
        self.called_models.append(request.model)
        hangs = self.called_models.count(request.model) == 1
        if hangs and request.model == SILENT:
            await asyncio.Event().wait()
        events = [pb.GenerateEvent(kind=pb.EVENT_KIND_TEXT, text=word) for word in WORDS]
        yield pb.GenerateResponse(events=[pb.GenerateEvent(kind=pb.EVENT_KIND_START), events[0]])
        if hangs:
            await asyncio.Event().wait()
        usage = pb.GenerateEvent(kind=pb.EVENT_KIND_USAGE, usage=pb.Usage(prompt_tokens=7, completion_tokens=3))
        finish = pb.GenerateEvent(kind=pb.EVENT_KIND_FINISH, text="stop")
        yield pb.GenerateResponse(events=[*events[1:], finish, usage])

    async def CountTokens(self, request: Any, context: Any) -> pb.CountTokensResponse:  # noqa: N802  # the contract's name
        counts = [len(text.split()) for text in request.texts]
        quotes = request.model == QUOTING
        return pb.CountTokensResponse(counts=counts, messages_count=7, context_window=4096, only_quotes=quotes)


@pytest.fixture
def generator() -> Generator:
    return Generator()  # type: ignore[abstract]  # the other methods are not called


@pytest.fixture
async def target(generator: Generator) -> AsyncIterator[str]:
    async with generator_server(generator) as found:
        yield found


def client_of(port: int) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=TAKEOVER_SECONDS)


async def create_background_response(client: httpx.AsyncClient, model: str) -> str:
    """Return the id of a background response, as soon as the gateway is connected to NATS."""
    end = time.monotonic() + READY_SECONDS
    body = {"model": model, "input": "When?", "background": True}
    while (answer := await client.post(PATH, json=body)).status_code == 503:
        assert time.monotonic() < end, answer.text
        await asyncio.sleep(0.05)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["id"])


async def read(client: httpx.AsyncClient, name: str, after: int = -1, pieces: list[str] | None = None) -> str:
    """Return the events of a response up to its end, and add them to `pieces` as they arrive."""
    pieces = [] if pieces is None else pieces
    query = {"stream": "true", "starting_after": str(after)}
    async with client.stream("GET", f"{PATH}/{name}", params=query) as answer:
        assert answer.status_code == 200
        async for text in answer.aiter_text():
            pieces.append(text)
    return "".join(f"{block}\n\n" for block in "".join(pieces).split("\n\n")[:-1] if not block.startswith(":"))


async def test_another_gateway_continues_after_a_kill(generator: Generator, target: str, tmp_path: Path) -> None:
    """A response without text is answered again, and a model that quotes continues after its first word.

    Any other response fails with its text so far. An earlier reader and each replay from any cursor get the same
    events.
    """
    settings = {"generator_target": target}
    async with nats_server(tmp_path / "nats") as url, gateway(nats_url=url, **settings) as (process, port):
        async with client_of(port) as client:
            names = {
                model: await create_background_response(client, model) for model in (SILENT, QUOTING, SPEAKING)
            }
        await eventually(lambda: sorted(generator.called_models) == sorted(names))
        async with gateway(nats_url=url, **settings) as (_, other), client_of(other) as client:
            seen: dict[str, list[str]] = {model: [] for model in names}
            readers = {
                model: asyncio.ensure_future(read(client, name, pieces=seen[model]))
                for model, name in names.items()
            }
            await eventually(lambda: all(seen.values()))
            await eventually(lambda: all(WORDS[0] in "".join(seen[model]) for model in (QUOTING, SPEAKING)))
            process.kill()
            async with asyncio.timeout(TAKEOVER_SECONDS):
                bodies = {model: await reader for model, reader in readers.items()}
            for model, body in bodies.items():
                await assert_equal_replays(client, names[model], body)
            ended = {
                model: responses.response((await client.get(f"{PATH}/{names[model]}")).json()) for model in names
            }
    assert sorted(generator.called_models) == sorted([SILENT, SILENT, QUOTING, QUOTING, SPEAKING])
    assert {model: (each.status, each.output_text) for model, each in ended.items()} == {
        SILENT: ("completed", "".join(WORDS)),
        QUOTING: ("completed", "".join(WORDS)),
        SPEAKING: ("failed", WORDS[0]),
    }


async def assert_equal_replays(client: httpx.AsyncClient, name: str, body: str) -> None:
    """Assert that a replay from each cursor has the events after it, byte for byte."""
    pieces = [f"{block}\n\n" for block in body.split("\n\n")[:-1]]
    assert len(responses.events(body)) == len(pieces)
    for after in range(-1, len(pieces)):
        assert await read(client, name, after) == "".join(pieces[after + 1 :])
