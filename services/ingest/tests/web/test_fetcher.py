"""Downloads from servers of the tests. Unlike in production, the check of addresses allows loopback."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from ingest.domain import Validators
from ingest.web.fetcher import WebFetcher, suffix_of
from servicekit.allowed_urls import AllowedUrls
from servicekit.errors import (
    DeadlineExceeded,
    InvalidRequest,
    NotFound,
    PayloadTooLarge,
    PermissionDenied,
    UnreadableDocument,
    UnsupportedMedia,
    UpstreamRejected,
)

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
HTML = {"content-type": "text/html"}


class Site:
    """A web server that records its requests."""

    def __init__(self) -> None:
        self.requests: list[web.BaseRequest] = []
        self.answer: Handler | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://localhost:{self.port}"

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self.requests.append(request)
        assert self.answer is not None
        return await self.answer(request)

    def responds(self, body: bytes = b"<p>Text.</p>", status: int = 200, **headers: str) -> None:
        """Make the server return the same response to all requests."""

        async def answer(_: web.BaseRequest) -> web.StreamResponse:
            response_headers = HTML | {name.replace("_", "-"): value for name, value in headers.items()}
            return web.Response(body=body, status=status, headers=response_headers)

        self.answer = answer


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    site = Site()
    runner = web.ServerRunner(web.Server(site.handle))
    await runner.setup()
    listener = socket.create_server(("127.0.0.1", 0))
    await web.SockSite(runner, listener).start()
    site.port = listener.getsockname()[1]
    yield site
    await runner.cleanup()


Fetch = Callable[..., Awaitable[Any]]


@pytest.fixture
async def fetch(site: Site, tmp_path: Path) -> AsyncIterator[Fetch]:
    """Return a function that fetches a URL and returns the facts and the content."""
    fetchers: list[WebFetcher] = []

    async def run(url: str, known: Validators | None = None, hosts: tuple[str, ...] = (), **changes: Any) -> Any:
        allowed = AllowedUrls.of([f"{host}:{site.port}" for host in ("localhost", *hosts)])
        values: dict[str, Any] = {
            "max_bytes": 1000,
            "seconds": 30.0,
            "is_allowed_address": lambda _: True,
        } | changes
        fetchers.append(WebFetcher(allowed, **values))
        path = tmp_path / "page"
        fetched = await fetchers[-1].fetch(url, path, known)
        return fetched, path.read_bytes() if fetched else b""

    yield run
    for fetcher in fetchers:
        await fetcher.aclose()


async def test_a_page_is_fetched(site: Site, fetch: Fetch) -> None:
    """A fetched page has validators and a suffix. The request contains no data of the platform."""
    site.responds(etag='"a1"', last_modified="Sat, 21 Nov 2026 10:00:00 GMT")
    fetched, body = await fetch(f"{site.url}/guide?x=1")
    assert body == b"<p>Text.</p>"
    assert (fetched.suffix, fetched.validators) == (".html", Validators('"a1"', "Sat, 21 Nov 2026 10:00:00 GMT"))
    [request] = site.requests
    assert request.path_qs == "/guide?x=1"
    sent = {name.lower() for name in request.headers}
    assert sent == {"host", "accept", "accept-encoding", "user-agent", "connection"}


async def test_a_page_that_has_not_changed(site: Site, fetch: Fetch) -> None:
    """The request has the validators of the last response, and the page is not downloaded again."""
    site.responds(b"", 304)
    known = Validators('"a1"', "Sat, 21 Nov 2026 10:00:00 GMT")
    assert await fetch(site.url, known) == (None, b"")
    sent = site.requests[0].headers
    assert (sent["if-none-match"], sent["if-modified-since"]) == (known.etag, known.last_modified)


async def test_redirects_are_followed(site: Site, fetch: Fetch) -> None:
    """The fetcher follows relative and absolute redirects to allowed hosts, up to a limit."""

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        places = {"/a": "b/c", "/b/c": f"http://localhost:{site.port}/d"}
        if request.path in places:
            return web.Response(status=302, headers={"location": places[request.path]})
        if request.path == "/loop":
            return web.Response(status=307, headers={"location": "/loop"})
        return web.Response(body=request.path.encode(), headers=HTML)

    site.answer = answer
    assert (await fetch(f"{site.url}/a"))[1] == b"/d"
    site.requests.clear()
    with pytest.raises(UnreadableDocument, match="redirects"):
        await fetch(f"{site.url}/loop")
    assert len(site.requests) == 6


@pytest.mark.parametrize(
    ("location", "error"),
    [
        ("http://elsewhere.example/", PermissionDenied),
        ("http://169.254.169.254/latest", PermissionDenied),
        ("http://[::ffff:127.0.0.1]/", PermissionDenied),
        ("//127.0.0.1:1/", PermissionDenied),
        ("file:///etc/passwd", InvalidRequest),
        ("http://a:b@localhost/", InvalidRequest),
        ("http://[", UnreadableDocument),
    ],
)
async def test_a_redirect_is_checked_like_the_first_url(
    site: Site, fetch: Fetch, location: str, error: type[Exception]
) -> None:
    """A redirect is checked like the first URL, because an allowed host may redirect elsewhere."""
    site.responds(b"", 302, location=location)
    with pytest.raises(error):
        await fetch(site.url)
    assert len(site.requests) == 1


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]", "[::ffff:127.0.0.1]"])
async def test_addresses_that_are_not_public(site: Site, tmp_path: Path, host: str) -> None:
    """With the default check, the fetcher does not connect to a loopback address, even if every host is allowed."""
    site.responds()
    fetcher = WebFetcher(AllowedUrls.of([f"*:{site.port}"]), max_bytes=1000, seconds=30)
    with pytest.raises(PermissionDenied, match="public"):
        await fetcher.fetch(f"http://{host}:{site.port}/", tmp_path / "page", None)
    await fetcher.aclose()
    assert site.requests == []


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
async def test_addresses_are_checked_at_each_connection(site: Site, fetch: Fetch, host: str) -> None:
    """The addresses of a host are checked at each connection, because those of a name can change."""

    async def again(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(status=302, headers={"location": "/again"})

    site.answer = again
    with pytest.raises(PermissionDenied):
        await fetch(
            f"http://{host}:{site.port}/", hosts=("127.0.0.1",), is_allowed_address=lambda _: not site.requests
        )
    assert len(site.requests) == 1


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (404, NotFound),
        (410, NotFound),
        (401, PermissionDenied),
        (403, PermissionDenied),
        (400, UnreadableDocument),
        (206, UnreadableDocument),
        (304, UnreadableDocument),
        (429, UpstreamRejected),
        (500, UpstreamRejected),
        (503, UpstreamRejected),
    ],
)
async def test_statuses(site: Site, fetch: Fetch, status: int, error: type[Exception]) -> None:
    """The status determines the class of the error, and so whether the job is retried."""
    site.responds(b"", status)
    with pytest.raises(error):
        await fetch(site.url)


async def test_a_document_that_is_too_large(site: Site, fetch: Fetch) -> None:
    """A document that is too large is refused, whether its server states the size or not."""
    site.responds(b"x" * 1001)
    with pytest.raises(PayloadTooLarge):
        await fetch(site.url)

    async def endless(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers=HTML)
        await response.prepare(request)
        while True:
            await response.write(b"x" * 100)

    site.answer = endless
    with pytest.raises(PayloadTooLarge):
        await fetch(site.url)


async def test_other_types_compressed_and_empty_answers(site: Site, fetch: Fetch) -> None:
    """The fetcher refuses responses of unsupported types, compressed responses and empty responses."""
    site.responds(content_type="video/mp4")
    with pytest.raises(UnsupportedMedia):
        await fetch(site.url)
    site.responds(content_encoding="gzip")
    with pytest.raises(UnsupportedMedia):
        await fetch(site.url)
    site.responds(b"")
    with pytest.raises(UnreadableDocument):
        await fetch(site.url)


async def test_a_server_that_is_too_slow_or_absent(
    site: Site, fetch: Fetch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the server is too slow or absent, the fetch ends in time with an error that allows another attempt."""
    ended = asyncio.Event()

    async def never(_: web.BaseRequest) -> web.StreamResponse:
        await ended.wait()
        return web.Response()

    site.answer = never
    with pytest.raises(DeadlineExceeded, match=r"longer than 0\.2 s"):
        await fetch(site.url, seconds=0.2)
    monkeypatch.setattr("ingest.web.fetcher._READ_SECONDS", 0.1)
    with pytest.raises(DeadlineExceeded, match="does not answer in time"):
        await fetch(site.url)
    ended.set()
    with pytest.raises(UpstreamRejected):
        await fetch(f"http://absent.invalid:{site.port}/", hosts=("absent.invalid",))


@pytest.mark.parametrize(
    ("content_type", "path_suffix", "suffix"),
    [
        ("text/html; charset=utf-8", ".php", ".html"),
        ("TEXT/HTML", "", ".html"),
        ("application/pdf", "", ".pdf"),
        ("text/markdown", "", ".md"),
        ("text/plain", ".py", ".py"),
        ("text/plain", "", ".txt"),
        ("text/x-unknown", "", ".txt"),
        ("", ".docx", ".docx"),
        ("application/octet-stream", ".xlsx", ".xlsx"),
        ("application/octet-stream", "", ""),
    ],
)
def test_the_suffix_of_a_document(content_type: str, path_suffix: str, suffix: str) -> None:
    """The content type of the response determines the suffix. For a generic type, the suffix of the URL does."""
    assert suffix_of(content_type, path_suffix) == suffix


@pytest.mark.parametrize("content_type", ["image/svg+xml", "video/mp4", "audio/flac", "application/x-\r\nfoo"])
def test_unsupported_types_have_no_suffix(content_type: str) -> None:
    """A document of an unsupported type is refused, even if its URL has the suffix of a supported type."""
    with pytest.raises(UnsupportedMedia):
        suffix_of(content_type, ".html")
