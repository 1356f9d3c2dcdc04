from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from causeway_testing.gateway.retrieval import FakeDocument
from gateway.domain.documents import StoredDocument
from gateway.frontends.profiles import Frontend
from gateway.frontends.snapshot import Frontends
from gateway.identity.caller import Caller
from gateway.routes import originals
from gateway.routes.rest import rest
from gateway.routes.table import ROUTES
from gateway.routing.table import RouteTable
from gateway.server.authentication import FixedCaller
from gateway.server.frontend_selection import ProfileLayer
from servicekit.errors import CausewayError, Unavailable, http_status
from servicekit.principal import LOCAL, Principal
from starlette.types import Scope

BYTES = bytes(range(256)) * 4
DIGEST = "a" * 64
ANN = Principal("local", "ann", oids=("ann",), roles=("ask",))
BOB = Principal("local", "bob", oids=("bob",), roles=("ask",))


def document(
    name: str, media: str = "application/pdf", updated_at: float = 1_700_000_000, **more: Any
) -> FakeDocument:
    digest = more.pop("digest", DIGEST)
    # The original is named by its digest.
    record = StoredDocument(more.pop("id", name), name, media, digest, len(BYTES), updated_at, digest)
    return FakeDocument(record, **more)


def client_for(fakes: Any, principal: Principal = LOCAL, **profile: Any) -> httpx.AsyncClient:
    def error_body(scope: Scope, error: CausewayError) -> bytes:
        return f"{http_status(error)} {error.field}".encode()

    router = originals.router(fakes.retriever, fakes.originals, timeout=5)
    frontend = Frontend(default_index="docs", **profile)
    app = ProfileLayer(
        FixedCaller(rest([router], error_body, (), RouteTable(ROUTES)), Caller(principal)),
        lambda: Frontends(frontend),
        RouteTable(ROUTES),
    )
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://gateway")


@pytest.fixture(autouse=True)
def stored(fakes: Any) -> None:
    fakes.originals.contents["local", DIGEST] = BYTES
    fakes.retriever.documents = {"docs": [document("a.pdf")]}


@pytest.fixture
async def http(fakes: Any) -> AsyncIterator[httpx.AsyncClient]:
    async with client_for(fakes) as client:
        yield client


async def test_the_original_is_sent_unchanged(http: httpx.AsyncClient) -> None:
    """The whole original is sent with its type, name and digest. Browsers show it and do not sniff the type."""
    response = await http.get("/content/a.pdf")
    assert (response.status_code, response.content) == (200, BYTES)
    assert response.headers["content-type"] == "application/pdf"
    assert response.headers["content-disposition"] == 'inline; filename="a.pdf"'
    assert response.headers["etag"] == f'"{DIGEST}"'
    assert response.headers["content-length"] == "1024"
    assert response.headers["accept-ranges"] == "bytes"
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["last-modified"] == "Tue, 14 Nov 2023 22:13:20 GMT"
    assert response.headers["cache-control"] == "private, no-cache"
    assert "content-security-policy" not in response.headers  # it would disable the browser's PDF viewer


@pytest.mark.parametrize(
    ("range_", "start", "end"),
    [
        ("bytes=0-9", 0, 10),
        ("bytes=1000-", 1000, 1024),
        ("bytes=-24", 1000, 1024),
        ("bytes=5-5", 5, 6),
        ("bytes=1000-9999", 1000, 1024),
        ("bytes=-9999", 0, 1024),
    ],
)
async def test_a_range_is_sent(http: httpx.AsyncClient, range_: str, start: int, end: int) -> None:
    """The response to a range has the status 206 and the existing bytes of the range."""
    response = await http.get("/content/a.pdf", headers={"range": range_})
    assert (response.status_code, response.content) == (206, BYTES[start:end])
    assert response.headers["content-range"] == f"bytes {start}-{end - 1}/1024"
    assert response.headers["content-length"] == str(end - start)
    assert response.headers["x-content-type-options"] == "nosniff"


async def test_several_ranges_are_sent(http: httpx.AsyncClient) -> None:
    """The response to several ranges has several parts."""
    response = await http.get("/content/a.pdf", headers={"range": "bytes=0-1,10-11"})
    assert response.status_code == 206
    assert response.headers["content-type"].startswith("multipart/byteranges")
    assert BYTES[:2] in response.content
    assert BYTES[10:12] in response.content


async def test_unsatisfiable_ranges_among_others_are_ignored(http: httpx.AsyncClient) -> None:
    """Only the satisfiable ranges of a header are sent. If one remains, the response has one part."""
    response = await http.get("/content/a.pdf", headers={"range": "bytes=0-1,1024-,2000-3000"})
    assert (response.status_code, response.content) == (206, BYTES[:2])
    assert response.headers["content-range"] == "bytes 0-1/1024"
    several = await http.get("/content/a.pdf", headers={"range": "bytes=-0, 0-1 ,10-11,5000-"})
    assert several.status_code == 206
    assert several.content.count(b"Content-Range") == 2


@pytest.mark.parametrize("value", ["bytes=1024-", "bytes=-0", "bytes=1024-,2000-3000"])
async def test_ranges_beyond_the_end_are_refused(http: httpx.AsyncClient, value: str) -> None:
    """If all ranges are beyond the end, the response has the status 416 and the length."""
    response = await http.get("/content/a.pdf", headers={"range": value})
    assert response.status_code == 416
    assert response.headers["content-range"] == "bytes */1024"


@pytest.mark.parametrize(
    "value",
    ["lines=1-2", "bytes", "bytes=", "bytes=abc", "bytes=-", "bytes=9-3", "bytes=0-1,x", "bytes=" + "9" * 5000],
)
async def test_an_invalid_range_is_ignored(http: httpx.AsyncClient, value: str) -> None:
    """A range with another unit or wrong numbers is ignored, and the whole document is sent."""
    response = await http.get("/content/a.pdf", headers={"range": value})
    assert (response.status_code, response.content) == (200, BYTES)


async def test_a_range_of_another_version_gives_the_whole_document(http: httpx.AsyncClient) -> None:
    """With If-Range and the tag of another version, the whole document is sent."""
    headers = {"range": "bytes=0-9"}
    assert (await http.get("/content/a.pdf", headers=headers | {"if-range": '"other"'})).status_code == 200
    assert (await http.get("/content/a.pdf", headers=headers | {"if-range": f'"{DIGEST}"'})).status_code == 206


@pytest.mark.parametrize("known", [f'"{DIGEST}"', f'W/"{DIGEST}"', f'"x", "{DIGEST}"', "*"])
async def test_a_known_version_is_not_sent_again(http: httpx.AsyncClient, fakes: Any, known: str) -> None:
    """For a known tag, the status is 304 and the store is not read. For another tag, the document is sent."""
    response = await http.get("/content/a.pdf", headers={"if-none-match": known})
    assert (response.status_code, response.content) == (304, b"")
    assert response.headers["etag"] == f'"{DIGEST}"'
    assert fakes.originals.opened == []
    assert (await http.get("/content/a.pdf", headers={"if-none-match": '"x"'})).status_code == 200


async def test_head_has_the_headers_alone(http: httpx.AsyncClient, fakes: Any) -> None:
    """The response to HEAD has only headers, and the original is not read."""
    response = await http.head("/content/a.pdf")
    assert (response.status_code, response.content) == (200, b"")
    assert response.headers["content-length"] == "1024"
    assert response.headers["content-type"] == "application/pdf"
    assert response.headers["etag"] == f'"{DIGEST}"'
    assert fakes.originals.opened == []


@pytest.mark.parametrize(
    ("name", "url", "shown"),
    [
        ("a b.pdf", "a%20b.pdf", "filename*=utf-8''a%20b.pdf"),
        ("Fährplan.pdf", "F%C3%A4hrplan.pdf", "filename*=utf-8''F%C3%A4hrplan.pdf"),
        ("x/y/z.pdf", "x/y/z.pdf", 'filename="z.pdf"'),
        ('a"b.pdf', "a%22b.pdf", "filename*=utf-8''a%22b.pdf"),
        ("a#b.pdf", "a%23b.pdf", "filename*=utf-8''a%23b.pdf"),
        ("a;b\\.pdf", "a;b%5C.pdf", "filename*=utf-8''a%3Bb%5C.pdf"),
        ("../../etc/passwd", "..%2F..%2Fetc%2Fpasswd", 'filename="passwd"'),
        ("日本.pdf", "%E6%97%A5%E6%9C%AC.pdf", "filename*=utf-8''%E6%97%A5%E6%9C%AC.pdf"),
    ],
)
async def test_a_document_with_any_name_opens(
    http: httpx.AsyncClient, fakes: Any, name: str, url: str, shown: str
) -> None:
    """A document with any name opens, and its name is encoded in the header."""
    fakes.retriever.documents = {"docs": [document(name)]}
    response = await http.get(f"/content/{url}")
    assert response.status_code == 200
    assert response.headers["content-disposition"] == f"inline; {shown}"


async def test_a_page_in_the_path_is_ignored(http: httpx.AsyncClient) -> None:
    """The fragment of a citation is ignored if a client encodes it into the path."""
    assert (await http.get("/content/a.pdf%23page=3")).status_code == 200


@pytest.mark.parametrize(
    ("media", "sent"),
    [
        ("text/plain", "text/plain; charset=utf-8"),
        ("text/markdown", "text/markdown; charset=utf-8"),
        ("", "application/octet-stream"),
    ],
)
async def test_the_type_of_a_document(http: httpx.AsyncClient, fakes: Any, media: str, sent: str) -> None:
    """The Content-Type of a text has the encoding. An unknown type is sent as `application/octet-stream`."""
    fakes.retriever.documents = {"docs": [document("a", media)]}
    assert (await http.get("/content/a")).headers["content-type"] == sent


async def test_a_hidden_document_is_not_found(fakes: Any) -> None:
    """A document that the caller may not see gets the same 404 as a missing document, for GET and for HEAD."""
    fakes.retriever.documents = {"docs": [document("a.pdf", oids=("ann",))]}
    async with client_for(fakes, ANN) as http:
        assert (await http.get("/content/a.pdf")).status_code == 200
    async with client_for(fakes, BOB) as http:
        hidden, missing = await http.get("/content/a.pdf"), await http.get("/content/b.pdf")
        assert (hidden.status_code, hidden.text) == (missing.status_code, missing.text)
        assert hidden.status_code == 404
        assert (await http.head("/content/a.pdf")).status_code == 404
        same = await http.get("/content/a.pdf", headers={"if-none-match": f'"{DIGEST}"'})
        assert same.status_code == 404
    async with client_for(fakes, LOCAL, enforce_access=True) as http:
        assert (await http.get("/content/a.pdf")).status_code == 404


async def test_the_newest_document_of_a_name_is_sent(fakes: Any, http: httpx.AsyncClient) -> None:
    """Of several documents of the same name, the newest one with an original is sent."""
    fakes.originals.contents["local", "b" * 64] = b"newer"
    fakes.retriever.documents = {
        "docs": [
            document("a.pdf", id="1", updated_at=3, digest=""),
            document("a.pdf", id="2", updated_at=2, digest="b" * 64),
            document("a.pdf", id="3", updated_at=1),
        ]
    }
    assert (await http.get("/content/a.pdf")).content == b"newer"


async def test_another_index_of_the_profile(fakes: Any) -> None:
    """The query may name another index of the profile. An index outside the profile gets the status 403."""
    fakes.retriever.documents = {"empty": [document("e.pdf")]}
    async with client_for(fakes, indexes=frozenset({"empty"})) as http:
        assert (await http.get("/content/e.pdf")).status_code == 404
        assert (await http.get("/content/e.pdf?index=empty")).status_code == 200
        assert (await http.get("/content/e.pdf?index=other")).text == "403 index"


async def test_a_missing_or_invalid_index_is_refused(fakes: Any) -> None:
    """An invalid index is refused with 400. An unknown index and a missing name get the status 404."""
    async with client_for(fakes) as http:
        assert (await http.get("/content/a.pdf?index=a/b")).status_code == 400
        assert (await http.get("/content/a.pdf?index=none")).status_code == 404
        assert (await http.get("/content/")).status_code == 404


async def test_a_missing_original_and_an_unavailable_store(http: httpx.AsyncClient, fakes: Any) -> None:
    """A missing original gets the status 404, and an unreachable store 503."""
    fakes.originals.contents.clear()
    assert (await http.get("/content/a.pdf")).status_code == 404
    fakes.originals.failure = Unavailable("The store cannot be reached.", retry_after=2)
    response = await http.get("/content/a.pdf")
    assert (response.status_code, response.headers["retry-after"]) == (503, "2")


@pytest.mark.parametrize("kept", ["U\u0308.pdf", "\u00dc.pdf"])
async def test_a_decomposed_name_opens_the_document(fakes: Any, http: httpx.AsyncClient, kept: str) -> None:
    """A decomposed name opens the document with this name in either normalization form."""
    fakes.retriever.documents = {"docs": [document(kept)]}
    assert (await http.get(f"/content/{quote('U' + chr(0x308))}.pdf")).status_code == 200


@pytest.mark.parametrize("name", ["C#.pdf", "What now?.md", "100%.md", "C%23.pdf", "[draft] a\\b.md"])
async def test_a_document_opens_by_the_name_that_is_cited(fakes: Any, http: httpx.AsyncClient, name: str) -> None:
    """A document opens by the cited name, encoded once or twice and with or without a page."""
    fakes.retriever.documents = {"docs": [document(name)]}
    cited = quote(name, safe="/ ")
    for path in (cited, quote(cited), f"{cited}#page=2", quote(f"{cited}#page=2")):
        response = await http.get(f"/content/{path}")
        assert (response.status_code, response.content) == (200, BYTES), path
