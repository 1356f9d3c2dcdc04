"""The gateway below a path that the proxy removes."""

import asyncio
import re
from typing import Any

import httpx
import pytest

pytestmark = pytest.mark.asyncio(loop_scope="session")

# The changes of the table in docs/proxies.md.
PATH_CHANGES = {
    "nginx": [
        ("location / {", "location /causeway/ {"),
        ("http://causeway;", "http://causeway/;"),
        ("location = /metrics {", "location = /causeway/metrics {"),
    ],
    "HAProxy": [
        ("http-reuse safe", "http-request replace-path /causeway(/.*) \\1\n    http-reuse safe"),
        ("-m str /metrics", "-m str /causeway/metrics"),
    ],
    "Caddy": [("reverse_proxy gateway", "uri strip_prefix /causeway\n    reverse_proxy gateway")],
    "Envoy": [
        ("match: {prefix: /}", "match: {prefix: /causeway/}"),
        ("cluster: gateway, timeout", "cluster: gateway, prefix_rewrite: /, timeout"),
        ("match: {path: /metrics}", "match: {path: /causeway/metrics}"),
    ],
}


async def test_the_openapi_document_has_the_path(platform: Any, start_proxy: Any, proxy: str) -> None:
    """The page `/docs` loads its files from below the path, and the OpenAPI document names the path as its server.
    Requests to this server succeed, and so do requests to the `Location` of a response.
    """
    async with (
        start_proxy(proxy, *PATH_CHANGES[proxy]) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=platform.headers("north")) as http,
    ):
        page = await http.get("/causeway/docs")
        assert page.status_code == 200
        loaded = re.findall(r"(?:href|src)=\"([^\"]+)\"|url: '([^']+)'", page.text)
        addresses = [first or second for first, second in loaded]
        assert len(addresses) >= 4
        for address in addresses:
            assert address.startswith("/causeway/")
            assert (await http.get(address)).status_code == 200, address
        document = (await http.get("/causeway/openapi.json")).json()
        assert document["servers"] == [{"url": "/causeway"}]
        [server] = document["servers"]
        created = await http.post(f"{server['url']}/indexes", json={"index_name": f"below-{proxy.lower()}"})
        assert created.status_code == 201, created.text
        assert (await http.get(created.headers["location"])).status_code == 200


@pytest.mark.parametrize("below", ["", "/causeway"])
async def test_metrics_are_closed(start_proxy: Any, proxy: str, below: str) -> None:
    """The proxy refuses every spelling of the path `/metrics`, although the gateway would answer it."""
    spellings = ("/metrics", "/%6detrics", "//metrics", "/./metrics", "/x/../metrics", "/metrics/", "/metrics?a=b")
    async with start_proxy(proxy, *(PATH_CHANGES[proxy] if below else ())) as port:
        for spelling in spellings:
            answer = await _get(port, f"{below}{spelling}")
            assert answer.startswith((b"HTTP/1.1 3", b"HTTP/1.1 4")), (spelling, answer[:200])
            assert b"# HELP" not in answer


async def _get(port: int, target: str) -> bytes:
    """Send a request with exactly this target. HTTP clients would normalise it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {target} HTTP/1.1\r\nHost: gateway\r\nConnection: close\r\n\r\n".encode())
    async with asyncio.timeout(10):
        answer = await reader.read()
    writer.close()
    return answer
