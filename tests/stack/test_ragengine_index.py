"""RAGEngine's routes for documents: with faults, and with many or large documents."""

import asyncio
import contextlib
import random
from pathlib import Path
from typing import Any

import pytest

MEBI = 1024 * 1024


def notes(count: int, word: str = "flashes") -> list[dict[str, Any]]:
    return [
        {"doc_id": f"d{n}", "text": f"Note {n}: the lamp of buoy {n} {word} every {n + 2} seconds."}
        for n in range(count)
    ]


async def list_documents(stack: Any, index: str) -> dict[str, Any]:
    return (await stack.http.get(f"/indexes/{index}/documents", params={"limit": 100})).json()  # type: ignore[no-any-return]  # JSON


def peak_memory(stack: Any, service: str) -> int:
    """Return the peak memory of a service's process in bytes."""
    pid = stack.description()["services"][service]["pid"]
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise LookupError("VmHWM")


@pytest.mark.parametrize("service", ["ingest", "retriever", "nats"])
async def test_a_batch_survives_a_kill(stack: Any, service: str) -> None:
    """If a service is killed during a request, the request still succeeds, and every document exists once."""
    before = notes(300)
    asking = asyncio.create_task(
        stack.http.post("/index", json={"index_name": "notes", "documents": before}, timeout=120)
    )
    await asyncio.sleep(1.0)
    stack.kill(service)
    response = await asking
    assert response.status_code == 200, response.text
    assert [each["doc_id"] for each in response.json()] == [each["doc_id"] for each in before]
    await stack.wait_until_ready()
    assert (await list_documents(stack, "notes"))["total_items"] == 300
    again = await stack.http.post("/indexes/notes/documents", json={"documents": before}, timeout=120)
    assert {group: len(found) for group, found in again.json().items()} == {
        "updated_documents": 0,
        "unchanged_documents": 300,
        "not_found_documents": 0,
    }


async def test_deletions_survive_a_restart(start_stack: Any, tmp_path: Path) -> None:
    """After a restart, deleted indexes and documents do not exist, and all others exist."""
    data = tmp_path / "data"
    async with start_stack(data) as stack:
        for index in ("gone", "kept"):
            body = {"index_name": index, "documents": notes(3)}
            (await stack.http.post("/index", json=body)).raise_for_status()
        (await stack.http.post("/indexes/kept/documents/delete", json={"doc_ids": ["d1"]})).raise_for_status()
        (await stack.http.delete("/indexes/gone")).raise_for_status()
    async with start_stack(data) as stack:
        assert (await stack.http.get("/indexes")).json() == ["kept"]
        assert (await stack.http.get("/indexes/gone/documents")).status_code == 404
        assert [each["doc_id"] for each in (await list_documents(stack, "kept"))["documents"]] == ["d0", "d2"]
        body = {"index_name": "gone", "documents": [{"doc_id": "new", "text": "Only this is here."}]}
        (await stack.http.post("/index", json=body)).raise_for_status()
        assert (await list_documents(stack, "gone"))["total_items"] == 1


async def test_concurrent_requests_for_the_same_documents(stack: Any) -> None:
    """After twenty concurrent requests for the same documents, the index has all documents of exactly one
    request.
    """
    bodies = [{"index_name": "race", "documents": notes(3, f"blinks-{n}")} for n in range(20)]
    answers = await asyncio.gather(*(stack.http.post("/index", json=body, timeout=120) for body in bodies))
    assert {answer.status_code for answer in answers} == {200}
    found = await list_documents(stack, "race")
    assert found["total_items"] == 3
    winners = {text.split("blinks-")[1].split()[0] for text in (each["text"] for each in found["documents"])}
    assert len(winners) == 1
    passages = await stack.http.post(
        "/retrieve", json={"index_name": "race", "query": "lamp of the buoy", "max_node_count": 100}
    )
    assert passages.json()["count"] == 3


async def test_a_long_request_becomes_a_job(start_stack: Any, tmp_path: Path) -> None:
    """The response to a long request is a 202 with a job. The job reports its progress and succeeds."""
    async with start_stack(tmp_path / "data", CAUSEWAY_INDEX_TIMEOUT="0.2") as stack:
        response = await stack.http.post("/index", json={"index_name": "notes", "documents": notes(200)})
        assert response.status_code == 202
        job = await stack.wait_for_job(response.json()["job"]["id"])
        assert (job["state"], job["document_id"]) == ("succeeded", "")
        assert job["progress"]["documents_done"] == job["progress"]["documents_total"] == 200
        assert (await list_documents(stack, "notes"))["total_items"] == 200


@pytest.mark.timeout(900)
async def test_ten_thousand_documents(stack: Any) -> None:
    """One request stores ten thousand documents with limited memory, and returns them in order. Searches succeed in
    the meantime.
    """
    documents = notes(10_000)
    asking = asyncio.create_task(
        stack.http.post("/index", json={"index_name": "many", "documents": documents}, timeout=900)
    )
    await asyncio.sleep(3)
    assert (
        await stack.http.post("/retrieve", json={"index_name": "tides", "query": "high water"})
    ).status_code == 200
    response = await asking
    if response.status_code == 202:
        job = response.json()["job"]
        while job["state"] not in ("succeeded", "failed"):
            await asyncio.sleep(1)
            job = (await stack.http.get(f"/jobs/{job['id']}")).json()
        assert job["state"] == "succeeded"
    else:
        assert response.status_code == 200, response.text
        assert [each["doc_id"] for each in response.json()] == [each["doc_id"] for each in documents]
    assert (await list_documents(stack, "many"))["total_items"] == 10_000
    _check_memory(stack)


@pytest.mark.timeout(600)
async def test_a_document_of_ten_megabytes(stack: Any) -> None:
    """A document of ten megabytes is stored unchanged. Its words are long, so that it has few tokens."""
    words = random.Random(1)
    text = " ".join("x" * words.randint(101, 160) + str(n) for n in range(75_000))
    assert len(text) > 10_000_000
    body = {"index_name": "large", "documents": [{"doc_id": "a", "text": text}]}
    response = await stack.http.post("/index", json=body, timeout=600)
    assert response.status_code == 200, response.text
    assert response.json()[0]["text"] == text
    page = await stack.http.get("/indexes/large/documents", params={"limit": 1, "max_text_length": 1_000_000})
    [document] = page.json()["documents"]
    assert (document["text"], document["is_truncated"]) == (text[:1_000_000], True)
    _check_memory(stack)


async def test_a_client_that_disconnects_during_a_batch(stack: Any) -> None:
    """The documents of an accepted request are stored although the client disconnects."""
    with contextlib.suppress(Exception):
        await stack.http.post("/index", json={"index_name": "left", "documents": notes(100)}, timeout=0.5)
    for _ in range(300):
        found = await list_documents(stack, "left")
        if found.get("total_items") == 100:
            break
        await asyncio.sleep(0.1)
    assert found["total_items"] == 100


def _check_memory(stack: Any) -> None:
    for service in ("gateway", "ingest", "retriever"):
        assert peak_memory(stack, service) < 700 * MEBI, service
