from typing import Any

import httpx
import pytest
from causeway_testing.gateway.retrieval import FakeDocument
from gateway.domain.documents import StoredDocument


@pytest.mark.parametrize("path", ["/indexes", "/nowhere", "/config", "/openapi.json", "/metrics", "/readyz"])
async def test_data_cannot_act_as_a_page(client: httpx.AsyncClient, path: str) -> None:
    """Browsers may not sniff or frame data and errors, and load nothing for them."""
    headers = (await client.get(path)).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/chat", {"messages": [{"role": "user", "content": "When?"}]}),
        ("/chat/stream", {"messages": [{"role": "user", "content": "When?"}]}),
        ("/v1/chat/completions", {}),
        ("/api/v2/text/detection/stream-content", {"detectors": {"words": {}}, "content": "a"}),
    ],
)
async def test_responses_may_not_be_sniffed(client: httpx.AsyncClient, path: str, body: dict[str, Any]) -> None:
    """Browsers may not sniff answers, streams and errors."""
    response = await client.post(path, json=body)
    assert response.headers.get_list("x-content-type-options") == ["nosniff"]


@pytest.mark.parametrize("path", ["/docs", "/docs/oauth2-redirect"])
async def test_the_page_loads_only_from_this_host(client: httpx.AsyncClient, path: str) -> None:
    """The page of the API loads only from this host and may not be framed."""
    policy = (await client.get(path)).headers["content-security-policy"]
    assert policy.startswith("default-src 'self'")
    assert "frame-ancestors 'none'" in policy


async def test_the_page_has_only_addresses_of_this_host(client: httpx.AsyncClient) -> None:
    """The page of the API has only addresses of this host."""
    page = (await client.get("/docs")).text
    assert "swagger-ui-bundle.js" in page
    assert "//" not in "".join(part.split(">")[0] for part in page.split("src=")[1:] + page.split("href=")[1:])


PASSIVE = ("application/pdf", "image/png", "text/plain", "text/markdown")
ACTIVE = (
    *("text/html", "TEXT/HTML", "text/html;charset=utf-8", "image/svg+xml", "application/xhtml+xml"),
    *("application/rss+xml", "multipart/x-mixed-replace", "application/x-unknown", ""),
)


async def test_active_originals_are_sandboxed(client: httpx.AsyncClient, fakes: Any) -> None:
    """An original is sandboxed unless its type is known to be harmless. Front ends may frame every original."""
    fakes.originals.contents["local", "0" * 64] = b"<script>alert(1)</script>"
    for media in (*PASSIVE, *ACTIVE):
        stored = StoredDocument("d", "a", media, "0" * 64, 1, 0.0, original="0" * 64)
        fakes.retriever.documents = {"docs": [FakeDocument(stored)]}
        headers = (await client.get("/content/a")).headers
        assert headers.get_list("x-content-type-options") == ["nosniff"], media
        policy = headers.get("content-security-policy", "")
        assert policy.startswith("sandbox; default-src 'none'") == (media in ACTIVE), media
        assert "allow-" not in policy
        assert "frame-ancestors" not in policy
