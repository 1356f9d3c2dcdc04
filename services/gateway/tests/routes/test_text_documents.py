import asyncio
import hashlib
import json
from typing import Any

import httpx
import pytest
from causeway_testing.servers import eventually
from gateway.main import build_app
from gateway.settings import Settings
from servicekit.errors import NotFound, PayloadTooLarge, Unavailable


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


async def add(client: httpx.AsyncClient, *documents: dict[str, Any], index: str = "docs") -> httpx.Response:
    return await client.post("/index", json={"index_name": index, "documents": list(documents)})


async def test_documents_are_added(client: httpx.AsyncClient, fakes: Any) -> None:
    """The response lists the added documents in the order of the request, and the index is created."""
    response = await add(
        client, {"text": "Second.", "doc_id": "z", "metadata": {"a": 1}}, {"text": "First."}, index="new"
    )
    assert response.status_code == 200
    assert response.json() == [
        {
            "doc_id": "z",
            "text": "Second.",
            "metadata": {"a": 1},
            "hash_value": digest("Second."),
            "is_truncated": False,
        },
        {
            "doc_id": digest("First."),
            "text": "First.",
            "metadata": {},
            "hash_value": digest("First."),
            "is_truncated": False,
        },
    ]
    assert set(fakes.indexes.indexes["new"]) == {"z", digest("First.")}
    assert int(response.headers["content-length"]) == len(response.content)


async def test_documents_are_updated(client: httpx.AsyncClient, fakes: Any) -> None:
    """An update lists each document as updated, unchanged or not found, and adds none."""
    await add(client, {"text": "A", "doc_id": "a"}, {"text": "B", "doc_id": "b"}, {"text": "C", "doc_id": "c"})
    documents = [
        {"doc_id": "x", "text": "X"},
        {"doc_id": "b", "text": "B", "metadata": {"n": 1}},
        {"doc_id": "a", "text": "A", "metadata": None},
        {"doc_id": "c", "text": "C!"},
    ]
    response = await client.post("/indexes/docs/documents", json={"documents": documents})
    assert response.status_code == 200
    ids = {group: [document["doc_id"] for document in listed] for group, listed in response.json().items()}
    assert ids == {"updated_documents": ["b", "c"], "unchanged_documents": ["a"], "not_found_documents": ["x"]}
    assert response.json()["updated_documents"][0]["metadata"] == {"n": 1}
    assert set(fakes.indexes.indexes["docs"]) == {"a", "b", "c"}


async def test_an_update_of_an_unknown_index_is_refused(client: httpx.AsyncClient, fakes: Any) -> None:
    """An unknown index gets the status 404 and an invalid name 400, and nothing is queued."""
    document = {"documents": [{"doc_id": "a", "text": "A"}]}
    response = await client.post("/indexes/nowhere/documents", json=document)
    assert response.status_code == 404
    assert response.json()["detail"] == "No such index: 'nowhere' exists."
    assert (await client.post("/indexes/.hidden/documents", json=document)).status_code == 400
    assert fakes.texts.submitted == []


async def test_one_invalid_document_refuses_the_request(client: httpx.AsyncClient, fakes: Any) -> None:
    """If one document is invalid, both routes refuse the whole request with 400 and the path of the field."""
    documents = [{"text": "Fine.", "doc_id": "a"}, {"text": "Fine.", "doc_id": "b", "metadata": [1]}]
    for path, more in (("/index", {"index_name": "docs"}), ("/indexes/docs/documents", {})):
        response = await client.post(path, json={"documents": documents, **more})
        assert response.status_code == 400
        assert "documents[1].metadata" in response.json()["detail"]
    assert fakes.texts.submitted == []


@pytest.mark.parametrize(
    ("content", "media", "status"),
    [
        (b"{}", "text/plain", 415),
        (b"{}", "application/x-www-form-urlencoded", 415),
        (b"", "application/json", 400),
        (b"{", "application/json", 400),
        (b"\xff", "application/json", 400),
        (b"[" * 100_000, "application/json", 400),
        (b"{" + b" " * 100_000 + b"}", "application/json", 413),
    ],
)
async def test_an_invalid_body_is_refused(
    client: httpx.AsyncClient, fakes: Any, content: bytes, media: str, status: int
) -> None:
    """A body of another media type, without JSON or above the limit is refused with the reason."""
    response = await client.post("/index", content=content[:100_002], headers={"content-type": media})
    assert response.status_code == status
    assert response.json()["detail"]
    assert fakes.texts.submitted == []


async def test_documents_may_exceed_the_limit_of_chats(client: httpx.AsyncClient) -> None:
    """The bodies of both routes may exceed the limit of chats. The body of a search may not."""
    text = "word " * 10_000
    assert (await add(client, {"text": text, "doc_id": "a"})).status_code == 200
    update = {"documents": [{"text": text, "doc_id": "a"}]}
    assert (await client.post("/indexes/docs/documents", json=update)).status_code == 200
    assert (await client.post("/retrieve", json={"index_name": "docs", "query": text})).status_code == 413


async def test_a_slow_request_returns_the_job(client: httpx.AsyncClient, fakes: Any) -> None:
    """A request that takes too long gets the status 202 and the job."""
    fakes.texts.stuck = True
    response = await add(client, {"text": "A"})
    assert response.status_code == 202
    job = response.json()["job"]
    assert (job["state"], job["index"]) == ("queued", "docs")
    assert response.headers["location"] == f"/jobs/{job['id']}"


@pytest.mark.parametrize("failure", [Unavailable("The ingest queue cannot be reached."), NotFound("Gone.")])
async def test_a_request_that_cannot_be_queued_fails(client: httpx.AsyncClient, fakes: Any, failure: Any) -> None:
    """A request that cannot be queued gets the status of the failure."""
    fakes.texts.failure = failure
    assert (await add(client, {"text": "A"})).status_code in (503, 404)


async def test_a_failed_job_returns_its_error(client: httpx.AsyncClient, fakes: Any) -> None:
    """If the job fails, the response has the status and the message of the failure."""
    fakes.texts.job_failure = PayloadTooLarge("Document 'a' has more than 10 characters.")
    response = await add(client, {"text": "A"})
    assert response.status_code == 413
    assert "more than 10" in response.json()["detail"]


async def test_the_wait_for_a_job_ends_when_the_client_leaves(port: int, fakes: Any) -> None:
    """The gateway stops waiting for a job when its client leaves."""
    fakes.texts.gate = asyncio.Event()
    body = json.dumps({"index_name": "docs", "documents": [{"text": "A"}]}).encode()
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST /index HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
    await eventually(lambda: fakes.texts.waiting == 1)
    writer.close()
    await eventually(lambda: fakes.texts.waiting == 0)


@pytest.mark.parametrize("path", ["/index", "/indexes/docs/documents"])
async def test_a_stopping_gateway_returns_the_job(
    client: httpx.AsyncClient, fakes: Any, draining: asyncio.Event, path: str
) -> None:
    """Both routes of a stopping gateway return 202 and the job."""
    assert (await add(client, {"text": "old", "doc_id": "a"})).status_code == 200
    fakes.texts.stuck, fakes.texts.gate = True, asyncio.Event()
    body = {"index_name": "docs", "documents": [{"text": "A", "doc_id": "a"}]}
    posting = asyncio.create_task(client.post(path, json=body))
    await eventually(lambda: fakes.texts.waiting == 1)
    draining.set()
    response = await posting
    assert response.status_code == 202
    assert response.headers["location"] == f"/jobs/{response.json()['job']['id']}"
    assert fakes.texts.waiting == 0


async def test_a_text_that_is_too_long_is_refused_at_once(fakes: Any) -> None:
    """A text above the limit is refused with 413, and no document of the request is submitted."""
    app = build_app(Settings(ingest_max_characters=3), fakes.services())
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://gateway") as client:
        response = await add(client, {"text": "über", "doc_id": "long"}, {"text": "übe", "doc_id": "short"})
        assert response.status_code == 413
        assert "'long' has more than 3 characters" in response.json()["detail"]
        assert not fakes.texts.submitted
        assert (await add(client, {"text": "übe", "doc_id": "short"})).status_code == 200


async def test_many_documents_keep_their_order(client: httpx.AsyncClient) -> None:
    """The response lists a thousand documents in the order of the request."""
    documents = [{"doc_id": f"{number * 7919 % 1000}", "text": f"Text {number}"} for number in range(1000)]
    response = await add(client, *documents)
    assert [document["doc_id"] for document in response.json()] == [document["doc_id"] for document in documents]


async def test_equal_texts_are_one_document(client: httpx.AsyncClient, fakes: Any) -> None:
    """Equal texts are one document. The response has an entry for each text of the request."""
    response = await add(client, {"text": "A"}, {"text": "B"}, {"text": "A", "metadata": {"n": 1}}, index="new")
    assert [(document["text"], document["metadata"]) for document in response.json()] == [
        ("A", {"n": 1}),
        ("B", {}),
        ("A", {"n": 1}),
    ]
    assert len(fakes.indexes.indexes["new"]) == 2
