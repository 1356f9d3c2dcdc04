"""A proxy does not buffer answers, and the model stops when a client behind a proxy disconnects."""

import asyncio
from typing import Any

import httpx
import pytest
from causeway_testing.model_answers import DONE, STREAM, Answer, Fault, Step, chunk, sse
from causeway_testing.servers import eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")

TOKENS = 8
QUESTION = [{"role": "user", "content": "When is high water?"}]
STREAMS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "events": ("/v1/chat/completions", "text/event-stream", {"stream": True}),
    "lines": ("/chat/stream", "application/json-lines", {}),
}


@pytest.fixture(params=list(STREAMS))
def stream(request: pytest.FixtureRequest) -> tuple[str, str, dict[str, Any]]:
    """Return the path of a streaming dialect, the content type of its answers, and the body of a request."""
    path, media, members = STREAMS[request.param]
    return path, media, {"messages": QUESTION, **members}


def _token(number: int) -> bytes:
    return sse(chunk({"role": "assistant", "content": f"word{number} "}))


async def test_each_token_arrives_before_the_next_is_generated(
    platform: Any, start_proxy: Any, proxy: str, stream: tuple[str, str, dict[str, Any]]
) -> None:
    """The client reads each token before the model generates the next one, although it accepts compressed
    answers.
    """
    path, media, body = stream
    read = [asyncio.Event() for _ in range(TOKENS)]
    steps: list[Step] = [step for number in range(TOKENS) for step in (_token(number), read[number])]
    platform.model.script(Answer((*steps, sse(chunk({}, "stop")), DONE), content_type=STREAM))
    async with (
        start_proxy(proxy) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=20) as http,
        http.stream("POST", path, json=body, headers=platform.headers("north")) as response,
    ):
        assert response.status_code == 200, await response.aread()
        assert response.headers["content-type"].startswith(media)
        text, reads = "", 0
        async for piece in response.aiter_text():
            text, reads = text + piece, reads + 1
            for number in range(TOKENS):
                if f"word{number} " in text:
                    read[number].set()
    found = [text.index(f"word{number} ") for number in range(TOKENS)]
    assert found == sorted(found)
    assert reads >= TOKENS


async def test_a_client_that_disconnects_in_mid_stream(
    platform: Any, start_proxy: Any, proxy: str, stream: tuple[str, str, dict[str, Any]]
) -> None:
    """The gateway closes its connection to the model server, although the model server sends no more bytes."""
    path, _, body = stream
    platform.model.script(Answer((_token(0), _token(1), Fault.HANG), content_type=STREAM))
    async with (
        start_proxy(proxy) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=20) as http,
    ):
        async with http.stream("POST", path, json=body, headers=platform.headers("north")) as response:
            text = ""
            async for piece in response.aiter_text():
                text += piece
                if "word1 " in text:
                    break
        await _wait_until_model_connection_closes(platform)


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_client_that_disconnects_before_the_first_token(
    platform: Any, start_proxy: Any, proxy: str, streamed: bool
) -> None:
    """The gateway also closes its connection to the model server before the first token."""
    platform.model.script(Answer((b"",), before=(Fault.HANG,)))
    before = len(platform.model.requests)
    body = {"messages": QUESTION, "stream": streamed}
    async with (
        start_proxy(proxy) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=20) as http,
    ):
        asking = asyncio.ensure_future(
            http.post("/v1/chat/completions", json=body, headers=platform.headers("north"))
        )
        await eventually(lambda: len(platform.model.requests) > before, what="a request to the model")
        asking.cancel()
        await _wait_until_model_connection_closes(platform)


async def _wait_until_model_connection_closes(platform: Any) -> None:
    recorded = platform.model.requests[-1]
    await eventually(lambda: recorded.closed_at is not None, what="the model's connection is closed")
    assert recorded.finished_at is None
