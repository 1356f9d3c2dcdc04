"""Cross-origin requests, with the whole application."""

from pathlib import Path
from typing import Any

import httpx
import pytest
from gateway.frontends.profiles_file import FrontendsFile
from gateway.main import build_app
from gateway.settings import Settings

FILE = """
frontends:
  - {name: a, mount: a, origins: [https://a.example], cors: [https://friend.example]}
  - {name: public, mount: public, cors: ["*"]}
  - {name: none, mount: none}
"""
HEADERS = ("access-control-allow-origin", "access-control-expose-headers", "access-control-allow-methods")


@pytest.fixture
def client(fakes: Any, settings: Settings, tmp_path: Path) -> httpx.AsyncClient:
    path = tmp_path / "frontends.yaml"
    path.write_text(FILE)
    fakes.frontends = FrontendsFile(path)
    transport = httpx.ASGITransport(build_app(settings, fakes.services()), raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://gateway")


async def preflight(client: httpx.AsyncClient, path: str, origin: str) -> httpx.Response:
    headers = {
        "origin": origin,
        "access-control-request-method": "POST",
        "access-control-request-headers": "content-type,x-ms-useragent",
    }
    return await client.options(path, headers=headers)


@pytest.mark.parametrize(
    ("path", "origin", "allowed"),
    [
        ("/a/chat", "https://a.example", "https://a.example"),
        ("/a/chat/stream", "https://friend.example", "https://friend.example"),
        ("/chat", "https://a.example", "https://a.example"),
        ("/a/chat_history/sessions/1", "https://a.example", "https://a.example"),
        ("/a/nowhere", "https://a.example", "https://a.example"),
        ("/public/v1/chat/completions", "https://anyone.example", "*"),
        ("/public/chat", "null", "*"),
    ],
)
async def test_preflights_of_allowed_origins_are_accepted(
    client: httpx.AsyncClient, path: str, origin: str, allowed: str
) -> None:
    """A preflight of an allowed origin gets 204, the allowed methods and headers, and a trace id."""
    response = await preflight(client, path, origin)
    assert response.status_code == 204
    assert response.headers["access-control-allow-origin"] == allowed
    assert "DELETE" in response.headers["access-control-allow-methods"]
    assert set(response.headers["access-control-allow-headers"].split(", ")) == {
        "authorization",
        "api-key",
        "x-api-key",
        "content-type",
        "last-event-id",
        "traceparent",
        "x-ms-useragent",
        "x-priority",
        "mcp-protocol-version",
        "mcp-session-id",
        "mcp-method",
        "mcp-name",
        "*",  # for example, the headers `x-stainless-…` of OpenAI's clients
    }
    assert (response.headers.get("vary") == "origin") is (allowed != "*")
    assert len(response.headers["x-trace-id"]) == 32
    assert "access-control-allow-credentials" not in response.headers
    assert response.content == b""


@pytest.mark.parametrize(
    ("path", "origin"),
    [
        ("/a/chat", "https://b.example"),
        ("/a/chat", "http://a.example"),
        ("/a/chat", "https://a.example.evil"),
        ("/a/chat", "null"),
        ("/none/chat", "https://a.example"),
        ("/chat", "https://friend.example"),
    ],
)
async def test_other_origins_are_refused(client: httpx.AsyncClient, path: str, origin: str) -> None:
    """Another origin gets no CORS headers. Its preflight and its request are refused."""
    refused = await preflight(client, path, origin)
    assert refused.status_code == 400
    answered = await client.post(path, json={"messages": "When?"}, headers={"origin": origin})
    assert answered.status_code == 403
    for response in (refused, answered):
        assert not any(name in response.headers for name in HEADERS)


async def test_all_responses_have_the_headers(client: httpx.AsyncClient, fakes: Any) -> None:
    """Every response, including errors, has the CORS headers."""
    origin = {"origin": "https://a.example"}
    fakes.retriever.indexes = {}
    responses = [
        await client.get("/a/config", headers=origin),
        await client.get("/a/nowhere", headers=origin),
        await client.post("/a/chat", content=b"{", headers=origin),
        await client.post("/a/chat", json={"messages": "When?"}, headers=origin),
        await client.post("/a/chat", content=b"x" * 30_000, headers=origin),
        await client.put("/a/chat", headers=origin),
        await client.options("/a/chat", headers=origin),
    ]
    assert [response.status_code for response in responses] == [200, 404, 400, 404, 413, 405, 405]
    for response in responses:
        assert response.headers["access-control-allow-origin"] == "https://a.example"
        exposed = response.headers["access-control-expose-headers"].split(", ")
        expected = {"retry-after", "x-trace-id", "x-request-id", "x-ratelimit-remaining-tokens"}
        assert expected | {"x-causeway-dropped-tools", "server-timing"} <= set(exposed)
        assert response.headers["vary"] == "origin"


async def test_responses_vary_by_origin(client: httpx.AsyncClient) -> None:
    """A response of a profile with origins has `vary: origin`, even if the request has no origin."""
    assert (await client.get("/a/config")).headers["vary"] == "origin"
    assert "vary" not in (await client.get("/none/config")).headers


async def test_without_profiles_no_origin_gets_headers(fakes: Any, settings: Settings) -> None:
    """Without profiles, no origin gets CORS headers."""
    transport = httpx.ASGITransport(build_app(settings, fakes.services()), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
        for origin in ("http://localhost:3000", "null", "https://a.example"):
            response = await client.get("/config", headers={"origin": origin})
            assert not any(name in response.headers for name in HEADERS)
            assert (await preflight(client, "/chat", origin)).status_code == 400
