import gzip
from pathlib import Path
from typing import Any

import httpx
import pytest
from gateway.main import build_app
from gateway.routes import console
from gateway.routes.rest import rest
from gateway.routes.table import route_table
from gateway.server.security_headers import PageHeaders
from gateway.settings import Settings
from servicekit.errors import CausewayError, InvalidRequest
from starlette.types import Scope

PAGE = b"<!doctype html><title>Causeway</title>" * 40
SCRIPT = b"export const here = 1;" * 100


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """The files of a built page."""
    static = tmp_path / "static"
    (static / "console" / "sample").mkdir(parents=True)
    (static / "index.html").write_bytes(PAGE)
    (static / "console" / "index-AbCd_-12.js").write_bytes(SCRIPT)
    (static / "console" / "index-AbCd_-12.js.gz").write_bytes(gzip.compress(SCRIPT))
    (static / "console" / "sample" / "tolls-and-crossing.md").write_text("# Tolls")
    (tmp_path / "secret.js").write_text("secret")
    return static


def _error(_scope: Scope, error: CausewayError) -> bytes:
    return error.message.encode()


def client(files: Path, *origins: str) -> httpx.AsyncClient:
    async def token_origins() -> tuple[str, ...]:
        return origins

    app = rest([console.router(token_origins, files)], _error, [], route_table([], console=True))
    return httpx.AsyncClient(transport=httpx.ASGITransport(PageHeaders(app)), base_url="http://127.0.0.1:8080")


async def test_only_browsers_get_the_page(files: Path) -> None:
    """The root returns the page to a browser, and 404 to another client."""
    async with client(files) as http:
        page = await http.get("/", headers={"accept": "text/html,*/*;q=0.8"})
        other = await http.get("/", headers={"accept": "application/json"})
        head = await http.head("/", headers={"accept": "text/html"})
    assert (page.status_code, page.content, page.headers["cache-control"]) == (200, PAGE, "no-cache")
    assert (other.status_code, other.text) == (404, "The path / does not exist.")
    assert (head.status_code, head.content) == (200, b"")


async def test_the_policy_allows_only_own_resources(files: Path) -> None:
    """The policy allows only own scripts and styles, and connections to the gateway and the token issuers.

    No page may frame the console.
    """
    async with client(files) as http:
        page = await http.get("/", headers={"accept": "text/html"})
    rules = dict(rule.split(" ", 1) for rule in page.headers["content-security-policy"].split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == rules["style-src"] == rules["connect-src"] == "'self'"
    assert rules["frame-ancestors"] == "'none'"
    async with client(files, "https://login.example.org", "https://tokens.example.org") as http:
        page = await http.get("/", headers={"accept": "text/html"})
    assert (
        "connect-src 'self' https://login.example.org https://tokens.example.org;"
        in page.headers["content-security-policy"]
    )


async def test_files_with_a_hash_are_cached_forever(files: Path) -> None:
    """A file with a hash in its name is cached forever and sent compressed. Browsers revalidate other files."""
    async with client(files) as http:
        script = await http.get("/console/index-AbCd_-12.js", headers={"accept-encoding": "gzip"})
        plain = await http.get("/console/index-AbCd_-12.js", headers={"accept-encoding": "identity"})
        sample = await http.get("/console/sample/tolls-and-crossing.md")
    assert script.content == plain.content == SCRIPT
    assert (script.headers["content-encoding"], "content-encoding" in plain.headers) == ("gzip", False)
    assert script.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert script.headers["content-type"] == "text/javascript; charset=utf-8"
    assert (sample.text, sample.headers["cache-control"]) == ("# Tolls", "no-cache")


@pytest.mark.parametrize(
    "path",
    ["nothing.js", "../secret.js", "%2e%2e/secret.js", "..%2fsecret.js", "sample", "index-AbCd_-12.js.gz", ""],
)
async def test_other_paths_are_not_found(files: Path, path: str) -> None:
    """Other files, folders and compressed copies get the status 404."""
    async with client(files) as http:
        assert (await http.get(f"/console/{path}")).status_code == 404


@pytest.mark.parametrize(("setting", "status"), [(True, 200), (False, 404)])
async def test_the_setting_turns_the_page_on(
    files: Path, fakes: Any, settings: Settings, monkeypatch: pytest.MonkeyPatch, setting: bool, status: int
) -> None:
    """With the setting, the gateway serves the page and its files. Without it, their paths return 404."""
    built = console._files_by_path(files)
    monkeypatch.setattr(console, "_files_by_path", lambda _: built)
    app = build_app(settings.model_copy(update={"console": setting}), fakes.services())
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1:8080") as http:
        for path in ("/", "/console/index-AbCd_-12.js"):
            assert (await http.get(path, headers={"accept": "text/html"})).status_code == status


def test_a_missing_page_prevents_the_start(tmp_path: Path) -> None:
    """The gateway does not start without a built page, and the message says how to build it."""
    with pytest.raises(InvalidRequest, match="make setup"):
        console.router(files=tmp_path / "nowhere")
