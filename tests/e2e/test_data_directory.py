"""This version opens the data directory of an earlier version and loses nothing."""

import json
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

ARCHIVES = sorted((Path(__file__).parent / "data").glob("*.tar.xz"))
TIMEOUT_SECONDS = 60.0


@dataclass
class Opened:
    """A platform that runs with an unpacked data directory, and the data that the earlier version stored in it."""

    url: str
    stored: dict[str, Any]

    def client(self, key: str) -> httpx.Client:
        """Return an HTTP client with one of the stored API keys."""
        return httpx.Client(base_url=self.url, headers={"api-key": self.stored["keys"][key]["key"]}, timeout=60)


@pytest.fixture(scope="module", params=ARCHIVES, ids=lambda path: path.name.partition(".")[0])
def opened(
    request: pytest.FixtureRequest,
    start_stack: Callable[..., AbstractContextManager[str]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Opened]:
    archive: Path = request.param
    stored = json.loads(archive.with_name(archive.name.replace(".tar.xz", ".json")).read_text())
    data = tmp_path_factory.mktemp("data")
    with tarfile.open(archive) as tar:
        tar.extractall(data, filter="data")
    # The directory has the indexes of the embedded engine, so no Qdrant server is used.
    with start_stack(data, **{**stored["settings"], "CAUSEWAY_QDRANT_URL": ""}) as url:
        yield Opened(url, stored)


@pytest.fixture
def http(opened: Opened) -> Iterator[httpx.Client]:
    with opened.client("admin") as client:
        yield client


def test_queued_jobs_succeed(opened: Opened, http: httpx.Client) -> None:
    """Queued jobs succeed, and their documents can be read and searched."""
    end = time.monotonic() + TIMEOUT_SECONDS
    for job in opened.stored["jobs"]:
        while (state := http.get(f"/jobs/{job}").json().get("state")) != "succeeded":
            assert state in (None, "queued", "parsing", "indexing")
            assert time.monotonic() < end, f"job {job} is {state}"
            time.sleep(0.1)
    for name, text in opened.stored["queued"].items():
        assert http.get(f"/content/{name}").text == text
    found = http.post("/retrieve", json={"index_name": "harbour", "query": "How much does crane 2 lift?"}).json()
    assert "40 tonnes" in found["results"][0]["text"]


def test_keys_keep_their_access(opened: Opened) -> None:
    """Each key keeps its role and tenant. A revoked key is refused."""
    expected = {"admin": 200, "ask": 403, "north": 200, "revoked": 401}
    for name, status in expected.items():
        with opened.client(name) as client:
            assert client.get("/jobs").status_code == status, name
    with opened.client("north") as client:
        assert client.get("/indexes").json() == []
    with opened.client("ask") as client:
        assert "notes" in client.get("/indexes").json()


def test_conversations_are_kept(opened: Opened, http: httpx.Client) -> None:
    """The saved conversations are listed, and are unchanged."""
    listed = http.get("/chat_history/sessions", params={"count": 10}).json()["sessions"]
    assert [each["id"] for each in listed] == list(opened.stored["history"])
    for session, answers in opened.stored["history"].items():
        assert http.get(f"/chat_history/sessions/{session}").json()["answers"] == answers


def test_originals_are_kept(opened: Opened, http: httpx.Client) -> None:
    """The originals of documents and uploads are unchanged, and the user's uploads are listed."""
    name, text = opened.stored["upload"]
    assert http.get("/list_uploaded").json() == [name]
    assert http.get(f"/content/{name}").text == text
    for sourcefile, content in opened.stored["harbour"].items():
        assert http.get(f"/content/{sourcefile}", params={"index": "harbour"}).text == content


def test_indexes_are_kept(opened: Opened, http: httpx.Client) -> None:
    """Questions are answered from both indexes."""
    for index, question, citation in (
        ("harbour", "When is high water at Kelsay?", "six in the morning"),
        ("notes", "How many cats does the lighthouse keeper feed?", "eleven cats"),
    ):
        body = {"messages": question, "context": {"overrides": {"index": index}}}
        answer = http.post("/2024-04/chat", json=body).raise_for_status().json()
        assert citation in answer["message"]["content"]
    assert {"harbour", "notes"} <= set(http.get("/indexes").json())


def test_an_index_is_restored_from_its_snapshot(opened: Opened, http: httpx.Client) -> None:
    """A deleted index is restored from its snapshot with all documents."""
    assert http.delete("/indexes/notes").status_code == 200
    assert "notes" not in http.get("/indexes").json()
    loaded = http.post("/load/notes", params={"path": opened.stored["snapshot"]})
    assert loaded.status_code == 200, loaded.text
    listed = http.get("/indexes/notes/documents").json()["documents"]
    expected = {each["doc_id"]: each["text"] for each in opened.stored["notes"]}
    assert {each["doc_id"]: each["text"] for each in listed} == expected
    found = http.post("/retrieve", json={"index_name": "notes", "query": "When does the ferry leave?"}).json()
    assert found["results"][0]["doc_id"] == "ferry"
