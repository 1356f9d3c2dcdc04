from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from causeway_testing.gateway.answering import FakeIngest
from causeway_testing.gateway.retrieval import FakeDocument
from gateway.domain.documents import Job, StoredDocument, Upload
from gateway.main import build_app
from servicekit.deadline import Deadline
from servicekit.errors import Unavailable
from servicekit.principal import Principal
from starlette.types import ASGIApp

FORM = {"index": "docs"}


def raw(*parts: tuple[bytes, bytes]) -> tuple[bytes, dict[str, str]]:
    """Build a form from the disposition and the content of each part."""
    body = (
        b"".join(b"--x\r\ncontent-disposition: form-data; %b\r\n\r\n%b\r\n" % part for part in parts) + b"--x--\r\n"
    )
    return body, {"content-type": "multipart/form-data; boundary=x"}


async def test_an_upload_becomes_a_job(client: httpx.AsyncClient, fakes: Any) -> None:
    """An upload becomes a job with all fields of the form, and the job can be read."""
    form = {
        "index": "docs",
        "category": "guides",
        "metadata": '{"year": 2024.0}',
        "oids": ["ann", "bob"],
        "groups": ["crew"],
    }
    response = await client.post("/documents", data=form, files={"file": ("a.md", b"# A")})
    assert response.status_code == 202
    [job] = response.json()["jobs"]
    assert (job["state"], job["index"], job["sourcefile"], job["error"]) == ("queued", "docs", "a.md", None)
    assert fakes.ingest.uploads == [
        Upload("docs", "a.md", b"# A", "guides", b'{"year": 2024.0}', ("ann", "bob"), ("crew",))
    ]
    again = await client.get(f"/jobs/{job['id']}")
    assert again.status_code == 200
    assert again.json() == job


async def test_several_files_become_several_jobs(client: httpx.AsyncClient, fakes: Any) -> None:
    """Several files become several jobs, in the order of the form."""
    files = [("file", (name, name.encode())) for name in ("a.md", "b.md", "c/d.md")]
    response = await client.post("/documents", data=FORM, files=files)
    assert [job["sourcefile"] for job in response.json()["jobs"]] == ["a.md", "b.md", "c/d.md"]
    assert [upload.content for upload in fakes.ingest.uploads] == [b"a.md", b"b.md", b"c/d.md"]


@pytest.mark.parametrize(
    "name", ["Fährplan für Übermorgen.pdf", "a/b/../c.md", "日本語.md", "a b\u202fc.png", "👩‍🚀.md"]
)
async def test_names_stay_unchanged(client: httpx.AsyncClient, fakes: Any, name: str) -> None:
    """A name keeps its umlauts, slashes and spaces."""
    response = await client.post("/documents", data=FORM, files={"file": (name, b"x")})
    assert response.status_code == 202
    assert fakes.ingest.uploads[0].sourcefile == name
    assert response.json()["jobs"][0]["sourcefile"] == name


async def test_names_are_normalized(client: httpx.AsyncClient, fakes: Any) -> None:
    """A decomposed name, as macOS sends it, is the same name as the composed one."""
    for name in ("U\u0308ber.md", "\u00dcber.md"):
        assert (await client.post("/documents", data=FORM, files={"file": (name, b"x")})).status_code == 202
    assert [upload.sourcefile for upload in fakes.ingest.uploads] == ["\u00dcber.md"] * 2
    files = [("file", (name, b"x")) for name in ("U\u0308ber.md", "\u00dcber.md")]
    response = await client.post("/documents", data=FORM, files=files)
    assert response.status_code == 400
    assert "Two files have the same name" in response.text


@pytest.mark.parametrize(
    "name", [b"a\tb.md", b"a\x00b.md", b"a\x85b.md".decode("latin-1").encode(), b" ", b"x" * 513]
)
async def test_a_name_is_one_line_and_not_too_long(client: httpx.AsyncClient, fakes: Any, name: bytes) -> None:
    """A name with control characters, a blank name or a name of more than 512 characters is refused."""
    body, headers = raw((b'name="index"', b"docs"), (b'name="file"; filename="%b"' % name, b"x"))
    response = await client.post("/documents", content=body, headers=headers)
    assert response.status_code == 400
    assert fakes.ingest.uploads == []


async def test_a_line_break_in_a_name_is_not_stored(client: httpx.AsyncClient, fakes: Any) -> None:
    """A name with a line break is refused, or stored without the line break."""
    body, headers = raw((b'name="index"', b"docs"), (b'name="file"; filename="a\r\nb.md"', b"x"))
    assert (await client.post("/documents", content=body, headers=headers)).status_code == 400
    body, headers = raw((b'name="index"', b"docs"), (b"name=\"file\"; filename*=UTF-8''a%0Ab.md", b"x"))
    assert (await client.post("/documents", content=body, headers=headers)).status_code in (400, 202)
    assert all("\n" not in upload.sourcefile for upload in fakes.ingest.uploads)


@pytest.mark.parametrize(
    ("form", "files", "field"),
    [
        ({}, {"file": ("a.md", b"x")}, "index"),
        ({"index": ""}, {"file": ("a.md", b"x")}, "index"),
        ({"index": "a/b"}, {"file": ("a.md", b"x")}, "index"),
        ({"index": "ä"}, {"file": ("a.md", b"x")}, "index"),
        ({"index": "a\x00"}, {"file": ("a.md", b"x")}, "index"),
        (FORM, {"other": ("a.md", b"x")}, "file"),
        (FORM, {"file": ("a.md", b"")}, "file"),
        (FORM | {"metadata": "{"}, {"file": ("a.md", b"x")}, "metadata"),
        (FORM | {"metadata": "[]"}, {"file": ("a.md", b"x")}, "metadata"),
        (FORM | {"metadata": "null"}, {"file": ("a.md", b"x")}, "metadata"),
        (FORM | {"metadata": "[" * 5000}, {"file": ("a.md", b"x")}, "metadata"),
        (FORM | {"metadata": '{"a":NaN}'}, {"file": ("a.md", b"x")}, "metadata"),
        (FORM | {"metadata": f'{{"a":{10**30}}}'}, {"file": ("a.md", b"x")}, "metadata"),
    ],
)
async def test_invalid_uploads_are_refused(
    client: httpx.AsyncClient, fakes: Any, form: dict[str, str], files: Any, field: str
) -> None:
    """An invalid field is refused with 400, and the error names the field."""
    response = await client.post("/documents", data=form, files=files)
    assert response.status_code == 400
    assert response.json()["error"]["param"].startswith(field)
    assert response.json()["detail"]
    assert fakes.ingest.uploads == []


async def test_a_text_instead_of_the_file_is_refused(client: httpx.AsyncClient) -> None:
    """A text field in place of the file is refused with 400."""
    body, headers = raw((b'name="index"', b"docs"), (b'name="file"', b"just text"))
    response = await client.post("/documents", content=body, headers=headers)
    assert response.status_code == 400
    assert response.json()["detail"] == "file.0: A file needs a file name."


async def test_empty_metadata_is_an_empty_object(client: httpx.AsyncClient, fakes: Any) -> None:
    """An empty metadata field is stored as an empty object."""
    await client.post("/documents", data=FORM | {"metadata": ""}, files={"file": ("a.md", b"x")})
    assert fakes.ingest.uploads[0].metadata_json == b"{}"


@pytest.mark.parametrize(
    "invalid", [("file", ("b.md", b"")), ("file", ("a.md", b"again")), ("file", (" ", b"x"))], ids=str
)
async def test_one_invalid_file_refuses_the_upload(client: httpx.AsyncClient, fakes: Any, invalid: Any) -> None:
    """If one of several files is invalid, the whole upload is refused."""
    response = await client.post("/documents", data=FORM, files=[("file", ("a.md", b"x")), invalid])
    assert response.status_code == 400
    assert fakes.ingest.uploads == []


@pytest.mark.parametrize(
    ("media", "status"),
    [
        ("application/json", 400),
        ("application/x-www-form-urlencoded", 415),
        ("", 415),
        ("multipart/form-data", 400),
        ("multipart/form-data; boundary=", 400),
        ("multipart/form-data; boundary=y", 400),
    ],
)
async def test_a_body_that_is_not_a_form_is_refused(client: httpx.AsyncClient, media: str, status: int) -> None:
    """A body that is not a form is refused with 400 or 415."""
    headers = {"content-type": media} if media else {}
    response = await client.post("/documents", content=b"--x\r\n\r\n--x--\r\n", headers=headers)
    assert response.status_code == status
    message = response.json()["error"]["message"]
    assert message
    assert ("and is missing." in message) == (not media)


async def test_a_form_without_its_last_boundary_is_refused(client: httpx.AsyncClient, fakes: Any) -> None:
    """A form without its last boundary is refused as a whole. The form parser would drop the incomplete part."""
    file = (b'name="file"; filename="a.md"', b"x")
    body, headers = raw((b'name="index"', b"docs"), file, file)
    response = await client.post("/documents", content=body[: -len("--x--\r\n") - 2], headers=headers)
    assert response.status_code == 400
    assert "last boundary" in response.text
    assert fakes.ingest.uploads == []


async def test_an_unreachable_queue_gets_503(client: httpx.AsyncClient, fakes: Any) -> None:
    """An upload gets the status 503 and Retry-After while the queue cannot be reached."""
    fakes.ingest.failure = Unavailable("The ingest queue cannot be reached.", retry_after=2)
    response = await client.post("/documents", data=FORM, files={"file": ("a.md", b"x")})
    assert response.status_code == 503
    assert response.headers["retry-after"] == "2"


class FailingIngest(FakeIngest):
    """An ingest that cannot be reached after two uploads."""

    async def submit(self, principal: Principal, upload: Upload, deadline: Deadline) -> Job:
        if len(self.uploads) == 2:
            raise Unavailable("The ingest queue cannot be reached.", retry_after=2)
        return await super().submit(principal, upload, deadline)


@pytest.fixture
def failing_ingest(fakes: Any) -> None:
    fakes.ingest = FailingIngest()


@pytest.mark.usefixtures("failing_ingest")
async def test_a_partly_accepted_upload_lists_its_jobs(client: httpx.AsyncClient) -> None:
    """The response lists the jobs of the accepted files, and names the first file that was not accepted."""
    files = [("file", (name, name.encode())) for name in ("a.md", "b.md", "c.md", "d.md")]
    response = await client.post("/documents", data=FORM, files=files)
    assert response.status_code == 503
    assert response.headers["retry-after"] == "2"
    assert "'c.md'" in response.json()["detail"]
    assert [job["sourcefile"] for job in response.json()["jobs"]] == ["a.md", "b.md"]


async def test_an_unknown_job_is_not_found(client: httpx.AsyncClient) -> None:
    """An unknown job gets the status 404, even if its id is malformed."""
    for job_id in ("none", "a%2Fb", "%00", "x" * 2000):
        response = await client.get(f"/jobs/{job_id}")
        assert response.status_code == 404
        assert response.json()["detail"]


async def test_a_large_file_arrives_complete(client: httpx.AsyncClient, fakes: Any) -> None:
    """A file larger than the memory limit of forms arrives complete."""
    content = bytes(range(256)) * 300
    await client.post("/documents", data=FORM, files={"file": ("a.bin", content)})
    assert fakes.ingest.uploads[0].content == content


async def test_documents_are_listed(client: httpx.AsyncClient, fakes: Any) -> None:
    """Documents are listed in pages with all their fields. An unknown index gets the status 404."""
    fakes.retriever.documents = {
        "docs": [
            FakeDocument(
                StoredDocument(name, f"{name}.md", "text/markdown", "ab" * 32, 7, 1_700_000_000.5, original)
            )
            for name, original in (("a", "o"), ("b", ""))
        ]
    }
    page = (await client.get("/documents", params={"index": "docs", "limit": 1})).json()
    assert page["documents"] == [
        {
            "document_id": "a",
            "sourcefile": "a.md",
            "content_type": "text/markdown",
            "sha256": "ab" * 32,
            "size_bytes": 7,
            "has_original": True,
            "oids": [],
            "groups": [],
            "updated_at": "2023-11-14T22:13:20.500000Z",
        }
    ]
    query = {"index": "docs", "page_token": page["next_page_token"]}
    rest = (await client.get("/documents", params=query)).json()
    assert [(document["document_id"], document["has_original"]) for document in rest["documents"]] == [("b", False)]
    assert rest["next_page_token"] is None
    assert (await client.get("/documents", params={"index": "none"})).status_code == 404
    for wrong in ("", "?index=a/b", "?index=docs&limit=0", "?index=docs&page_token=x"):
        assert (await client.get(f"/documents{wrong}")).status_code == 400


@pytest.fixture
def linking(settings: Any, fakes: Any) -> ASGIApp:
    """An application that accepts URLs of some hosts."""
    return build_app(
        settings.model_copy(update={"ingest_urls": ["docs.example.org", "*.example.net"]}), fakes.services()
    )


@pytest.fixture
async def linked(linking: ASGIApp) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(linking, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as http:
        yield http


async def test_urls_become_jobs(linked: httpx.AsyncClient, fakes: Any) -> None:
    """Each URL in a JSON body becomes a job with all fields of the body. The URL determines the document's name."""
    body = {
        "index": "docs",
        "urls": ["https://docs.example.org/a.html#top", "HTTP://A.example.net"],
        "category": "guides",
        "metadata": {"year": 2024.0},
        "oids": ["ann"],
        "groups": ["crew"],
        "pictures": True,
    }
    response = await linked.post("/documents", json=body)
    assert response.status_code == 202
    assert [job["sourcefile"] for job in response.json()["jobs"]] == ["docs.example.org/a.html", "a.example.net"]
    common = (b"", "guides", b'{"year":2024.0}', ("ann",), ("crew",))
    assert fakes.ingest.uploads == [
        Upload("docs", "docs.example.org/a.html", *common, pictures=True, url="https://docs.example.org/a.html"),
        Upload("docs", "a.example.net", *common, pictures=True, url="http://a.example.net/"),
    ]


async def test_a_form_may_have_files_and_urls(linked: httpx.AsyncClient, fakes: Any) -> None:
    """A form may have both files and URLs."""
    form = FORM | {"url": ["https://docs.example.org/a", "https://docs.example.org/b"]}
    response = await linked.post("/documents", data=form, files={"file": ("c.md", b"x")})
    assert response.status_code == 202
    assert sorted((upload.sourcefile, upload.content, upload.url) for upload in fakes.ingest.uploads) == [
        ("c.md", b"x", ""),
        ("docs.example.org/a", b"", "https://docs.example.org/a"),
        ("docs.example.org/b", b"", "https://docs.example.org/b"),
    ]


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({"index": "docs"}, 400, "urls"),
        ({"index": "docs", "urls": []}, 400, "urls"),
        ({"index": "docs", "urls": {}}, 400, "urls"),
        ({"index": "docs", "urls": [1]}, 400, "urls"),
        ({"index": "docs", "urls": ["file:///etc/passwd"]}, 400, "urls[0]"),
        ({"index": "docs", "urls": ["https://docs.example.org/", "https://a:b@docs.example.org/"]}, 400, "urls[1]"),
        ({"index": "docs", "urls": ["https://elsewhere.example.com/"]}, 403, "urls[0]"),
        ({"index": "docs", "urls": ["http://169.254.169.254/latest"]}, 403, "urls[0]"),
        ({"index": "docs", "urls": ["https://docs.example.org/a", "http://docs.example.org/a"]}, 400, "urls"),
        ({"index": "docs", "urls": [f"https://docs.example.org/{n}" for n in range(1001)]}, 400, "urls"),
        ({"index": "a/b", "urls": ["https://docs.example.org/"]}, 400, "index"),
        ({"urls": ["https://docs.example.org/"]}, 400, "index"),
        ({"index": "docs", "urls": ["https://docs.example.org/"], "metadata": []}, 400, "metadata"),
        ({"index": "docs", "urls": ["https://docs.example.org/"], "file": "x"}, 400, "file"),
    ],
)
async def test_an_invalid_url_refuses_the_request(
    linked: httpx.AsyncClient, fakes: Any, body: dict[str, Any], status: int, field: str
) -> None:
    """An invalid URL or field is refused, the error names the field, and no URL of the request is submitted."""
    response = await linked.post("/documents", json=body)
    assert (response.status_code, response.json()["error"]["param"]) == (status, field)
    assert fakes.ingest.uploads == []


async def test_urls_are_refused_by_default(client: httpx.AsyncClient, fakes: Any) -> None:
    """URLs are refused with 403 by default."""
    response = await client.post("/documents", json={"index": "docs", "urls": ["https://docs.example.org/"]})
    assert response.status_code == 403
    assert "fetches no documents" in response.json()["detail"]
    response = await client.post(
        "/documents", data=FORM | {"url": "https://docs.example.org/"}, files={"file": ("a.md", b"x")}
    )
    assert response.status_code == 403
    assert fakes.ingest.uploads == []
