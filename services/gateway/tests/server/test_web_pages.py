"""The protection of a gateway without authentication against requests from web pages."""

from pathlib import Path
from typing import Any

import httpx
import pytest
from gateway.frontends.profiles_file import FrontendsFile
from gateway.main import build_app
from gateway.settings import Settings

FRONTENDS = """
frontends:
  - {name: help, mount: help, hosts: [help.example.com], origins: ["https://page.example.com"], index: docs}
"""
QUESTION = {"messages": [{"role": "user", "content": "When does the ferry leave?"}]}


def client(fakes: Any, tmp_path: Path, **settings: Any) -> httpx.AsyncClient:
    """Return a client of a gateway with a profile."""
    path = tmp_path / "frontends.yaml"
    path.write_text(FRONTENDS)
    fakes.frontends = FrontendsFile(path)
    configured = Settings(default_index="docs", **{"allowed_hosts": ["Causeway.internal", "other:81"], **settings})
    transport = httpx.ASGITransport(build_app(configured, fakes.services()), raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://localhost:8080")


OWN_HOSTS = (
    *("localhost", "LOCALHOST:8080", "127.0.0.1:8080", "127.1.2.3", "[::1]:8080", "[::1]", "a.localhost"),
    *("localhost.:80", "help.example.com:443", "causeway.internal:9", "other:81"),
)
OTHER_HOSTS = (
    *("other", "evil.example.com", "localhost.evil.com", "127.0.0.1.evil.com", "10.0.0.1", "evil@localhost.com"),
    *("[::1", "0.0.0.0", "notlocalhost"),
)


@pytest.mark.parametrize(("method", "path"), [("GET", "/indexes"), ("DELETE", "/indexes/x"), ("GET", "/nowhere")])
async def test_only_own_hosts_are_accepted(fakes: Any, tmp_path: Path, method: str, path: str) -> None:
    """Loopback hosts, hosts of profiles and allowed hosts are accepted. Other hosts are refused with 403."""
    async with client(fakes, tmp_path) as http:
        for host in OWN_HOSTS:
            answer = await http.request(method, path, headers={"host": host})
            assert answer.status_code != 403, (host, answer.text)
        for host in OTHER_HOSTS:
            answer = await http.request(method, path, headers={"host": host})
            assert answer.status_code == 403, (host, answer.text)
            assert "CAUSEWAY_ALLOWED_HOSTS" in answer.text


async def test_pages_of_other_origins_are_refused(fakes: Any, tmp_path: Path) -> None:
    """A page of another origin is refused unless its profile allows it. Programs and own pages are served."""
    cases: list[tuple[str, dict[str, str], bool]] = [
        ("/chat", {}, True),
        ("/chat", {"origin": "http://localhost:8080"}, True),
        ("/chat", {"sec-fetch-site": "same-origin"}, True),
        ("/chat", {"sec-fetch-site": "none"}, True),
        ("/chat", {"origin": "http://localhost:3000"}, False),
        ("/chat", {"origin": "http://evil.example.com"}, False),
        ("/chat", {"origin": "null"}, False),
        ("/chat", {"sec-fetch-site": "cross-site"}, False),
        ("/chat", {"sec-fetch-site": "same-site"}, False),
        ("/chat", {"sec-fetch-site": "cross-site", "sec-fetch-dest": "document"}, False),
        ("/help/chat", {"origin": "https://page.example.com", "sec-fetch-site": "cross-site"}, True),
        ("/help/chat", {"origin": "https://evil.example.com", "sec-fetch-site": "cross-site"}, False),
    ]
    async with client(fakes, tmp_path) as http:
        for path, headers, accepted in cases:
            answer = await http.post(path, json=QUESTION, headers=headers)
            assert answer.status_code == (200 if accepted else 403), (headers, answer.text)


async def test_navigation_from_another_page_is_served(fakes: Any, tmp_path: Path) -> None:
    """A navigation from another page is served. An image or a frame of another page is refused."""
    async with client(fakes, tmp_path) as http:
        for dest, status in (("document", 200), ("image", 403), ("iframe", 403)):
            headers = {"sec-fetch-site": "cross-site", "sec-fetch-dest": dest}
            assert (await http.get("/indexes", headers=headers)).status_code == status


async def test_with_authentication_any_host_is_accepted(fakes: Any, tmp_path: Path) -> None:
    """Any host is accepted if the gateway requires credentials."""
    async with client(fakes, tmp_path, auth="keys") as http:
        answer = await http.get(
            "/indexes", headers={"host": "any.example.com", "origin": "https://evil.example.com"}
        )
        assert answer.status_code == 401  # without a key


async def test_open_routes_accept_every_request(fakes: Any, tmp_path: Path) -> None:
    """Open routes accept every host and origin."""
    async with client(fakes, tmp_path) as http:
        headers = {"host": "10.0.0.1", "origin": "https://evil.example.com"}
        assert (await http.get("/healthz", headers=headers)).status_code == 200
