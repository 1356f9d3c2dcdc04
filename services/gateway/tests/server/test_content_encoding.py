"""Compressed request bodies, with the whole application."""

import gzip
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
from gateway.main import build_app
from gateway.settings import Settings

GZIP = {"content-type": "application/json", "content-encoding": "gzip"}
LIMIT = 1_000_000


@pytest.fixture
async def client(fakes: Any, settings: Settings) -> AsyncIterator[httpx.AsyncClient]:
    app = build_app(settings.model_copy(update={"max_body_bytes": LIMIT}), fakes.services())
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as http:
        yield http


def question(length: int = 10) -> bytes:
    return json.dumps({"messages": [{"role": "user", "content": "When? " + "x" * length}]}).encode()


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/chat"])
async def test_a_compressed_body_is_read(client: httpx.AsyncClient, fakes: Any, path: str) -> None:
    """A compressed body is decoded from one or many pieces, and from one or several gzip members."""
    for length in (1, 65_536, 500_000):
        body = gzip.compress(question(length), mtime=0)
        split = gzip.compress(question(length)[:9], mtime=0) + gzip.compress(question(length)[9:])

        async def pieces(whole: bytes = body) -> AsyncIterator[bytes]:
            for at in range(0, len(whole), 7):
                yield whole[at : at + 7]

        contents: list[Any] = [body, split, pieces()]
        for content in contents:
            response = await client.post(path, content=content, headers=GZIP)
            assert response.status_code == 200, response.text
    assert len(fakes.generator.prompts) == 9


async def test_the_limit_applies_to_the_decoded_body(client: httpx.AsyncClient, fakes: Any) -> None:
    """The limit of bodies applies to the decoded size."""
    body = gzip.compress(question(LIMIT), mtime=0)
    assert len(body) < LIMIT / 100
    for path in ("/v1/chat/completions", "/chat", "/retrieve", "/v1/embeddings"):
        response = await client.post(path, content=body, headers=GZIP)
        assert response.status_code == 413, path
    assert fakes.generator.prompts == []


def invalid_bodies() -> Iterator[bytes]:
    whole = gzip.compress(question(), mtime=0)
    yield question()
    yield whole[:-1]
    yield whole[:15]
    yield whole + b"more"


@pytest.mark.parametrize("body", list(invalid_bodies()))
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/chat", "/retrieve"])
async def test_an_invalid_gzip_is_refused(client: httpx.AsyncClient, fakes: Any, path: str, body: bytes) -> None:
    """A body that is not complete gzip is refused with 400."""
    response = await client.post(path, content=body, headers=GZIP)
    assert response.status_code == 400
    assert fakes.generator.prompts == []


@pytest.mark.parametrize("encoding", ["br", "deflate", "gzip, gzip", "zstd"])
async def test_another_encoding_is_refused(client: httpx.AsyncClient, encoding: str) -> None:
    """Another encoding is refused with 415, and the message names gzip."""
    headers = {**GZIP, "content-encoding": encoding}
    response = await client.post("/v1/chat/completions", content=question(), headers=headers)
    assert (response.status_code, response.json()["error"]["param"]) == (415, "content-encoding")
    assert "gzip" in response.json()["detail"]


async def test_the_encoding_identity_changes_nothing(client: httpx.AsyncClient) -> None:
    """A body with the encoding `identity` is read unchanged."""
    headers = {**GZIP, "content-encoding": "identity"}
    assert (await client.post("/v1/chat/completions", content=question(), headers=headers)).status_code == 200
