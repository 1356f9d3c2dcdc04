import uuid
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from fpdf import FPDF

Ingest = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def index() -> str:
    """Return the name of a new index."""
    return f"e2e-{uuid.uuid4().hex[:12]}"


def pdf(*pages: str, password: str = "") -> bytes:
    document = FPDF()
    document.set_font("Helvetica", size=12)
    for text in pages:
        document.add_page()
        if text:
            document.multi_cell(0, 8, text)
    if password:
        document.set_encryption(owner_password=password, user_password=password)
    return bytes(document.output())


def answer(http: httpx.Client, index: str, question: str) -> dict[str, Any]:
    body = {"messages": question, "context": {"overrides": {"index": index}}}
    return http.post("/2024-04/chat", json=body).raise_for_status().json()  # type: ignore[no-any-return]  # JSON


def test_an_uploaded_document_answers_a_question(http: httpx.Client, ingest: Ingest, index: str) -> None:
    """The answer to a question cites the right page of an uploaded PDF."""
    content = pdf("The lighthouse is white and 31 metres tall.", "The keeper feeds eleven cats every morning.")
    [job] = ingest(index, {"lighthouse.pdf": content}, category="island")
    assert job["state"] == "succeeded"
    assert job["progress"]["pages_done"] == job["progress"]["pages_total"] == 2
    assert job["progress"]["chunks_done"] == job["progress"]["chunks_total"] >= 2
    reply = answer(http, index, "How many cats does the keeper feed?")
    assert "eleven cats" in reply["message"]["content"]
    assert "[lighthouse.pdf#page=2]" in reply["message"]["content"]


def test_an_identical_upload_is_unchanged(ingest: Ingest, index: str) -> None:
    """The second job for the same content under the same name has the state `unchanged`."""
    files = {"rules.md": b"# Rules\n\nNo cycling on the pier after dusk.\n"}
    assert ingest(index, files)[0]["state"] == "succeeded"
    assert ingest(index, files)[0]["state"] == "unchanged"


def test_new_content_replaces_the_old(http: httpx.Client, ingest: Ingest, index: str) -> None:
    """After an upload under the same name, only the new content is found."""
    ingest(index, {"price.md": b"# Price\n\nA day ticket costs 14 crowns.\n"})
    ingest(index, {"price.md": b"# Price\n\nA day ticket costs 19 crowns.\n"})
    points = answer(http, index, "What does a day ticket cost?")["context"]["data_points"]["text"]
    assert len(points) == 1
    assert "19 crowns" in points[0]


UNREADABLE = {
    "locked.pdf": (pdf("secret", password="x"), "encrypt"),
    "torn.pdf": (pdf("The end is missing.")[:200], "PDF"),
    "picture.pdf": (b"\x89PNG\r\n\x1a\n" + bytes(64), "is a picture"),
    "letter.pdf": (b"Just a letter, not a PDF at all.", "PDF"),
    "binary.md": (bytes(range(256)) * 8, "text"),
    "scan.pdf": (pdf("", ""), "text"),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_an_unreadable_file_fails_with_the_reason(
    http: httpx.Client, ingest: Ingest, index: str, name: str
) -> None:
    """The job of an unreadable file fails with the reason and creates no index. The job of the next file
    succeeds.
    """
    content, message = UNREADABLE[name]
    [job] = ingest(index, {name: content})
    assert job["state"] == "failed"
    assert message.lower() in job["error"]["message"].lower()
    body = {"messages": "Anything?", "context": {"overrides": {"index": index}}}
    assert http.post("/chat", json=body).status_code == 404
    assert ingest(index, {"good.md": b"# Good\n\nThis one is fine.\n"})[0]["state"] == "succeeded"


def test_invalid_uploads_are_refused_immediately(http: httpx.Client, index: str) -> None:
    """An invalid upload gets a 4xx with the reason."""
    good = ("file", ("a.md", b"# A\n\nText.\n"))
    empty = ("file", ("empty.md", b""))
    cases: list[tuple[dict[str, str], list[Any], str]] = [
        ({"index": index}, [empty], "empty.md"),
        ({"index": index}, [good, empty], "empty.md"),
        ({}, [good], "index"),
        ({"index": "a/b"}, [good], "index"),
        ({"index": index, "metadata": "[1]"}, [good], "metadata"),
    ]
    for form, files, message in cases:
        response = http.post("/documents", data=form, files=files)
        assert 400 <= response.status_code < 500, (form, response.text)
        assert message in response.json()["detail"]


def test_an_unknown_job_is_a_404(http: httpx.Client) -> None:
    """A request for an unknown job gets a 404 that names the job."""
    response = http.get("/jobs/doesnotexist")
    assert response.status_code == 404
    assert "doesnotexist" in response.json()["detail"]


def test_a_deleted_document_is_not_found(http: httpx.Client, ingest: Ingest, index: str) -> None:
    """After the deletion of a document, a search finds only the other documents. The response lists unknown ids."""
    jobs = ingest(
        index,
        {"cats.md": b"# Cats\n\nThe harbour has nine cats.\n", "dogs.md": b"# Dogs\n\nThe harbour has two dogs.\n"},
    )
    ids = {job["sourcefile"]: job["document_id"] for job in jobs}
    path = f"/indexes/{index}/documents/delete"
    removed = http.post(path, json={"doc_ids": [ids["cats.md"], "no-such-id"]}).raise_for_status().json()
    assert removed == {"deleted_doc_ids": [ids["cats.md"]], "not_found_doc_ids": ["no-such-id"]}
    points = answer(http, index, "How many cats and dogs has the harbour?")["context"]["data_points"]["citations"]
    assert points == ["dogs.md"]
    again = http.post(path, json={"doc_ids": [ids["cats.md"]]}).json()
    assert again == {"deleted_doc_ids": [], "not_found_doc_ids": [ids["cats.md"]]}


def test_an_index_has_its_own_passage_length(http: httpx.Client, ingest: Ingest, index: str) -> None:
    """New documents get the passage length of their index."""
    text = " ".join(f"Buoy {number} lies {number + 3} cables off the northern pier." for number in range(60))
    names = {"long": index, "short": f"{index}-short"}
    new_index = {"index_name": names["short"], "chunk_tokens": 40, "chunk_overlap": 0}
    assert http.post("/indexes", json=new_index).raise_for_status().json()["chunk_tokens"] == 40
    counts = {}
    for kind, name in names.items():
        [job] = ingest(name, {"buoys.md": text.encode()})
        assert job["state"] == "succeeded"
        counts[kind] = job["progress"]["chunks_total"]
    assert counts["short"] > 3 * counts["long"]
    found = http.post("/retrieve", json={"index_name": names["short"], "query": "Where is buoy 7?"})
    assert all(len(node["text"].split()) <= 40 for node in found.raise_for_status().json()["results"])


def test_search_settings_of_an_index_can_be_changed(http: httpx.Client, ingest: Ingest, index: str) -> None:
    """Changed settings of an index apply from the next search until they are reset."""
    ingest(index, {f"{name}.md": f"The {name} is on the pier.".encode() for name in ("crane", "ferry", "lamp")})

    def scores() -> list[float]:
        found = http.post("/retrieve", json={"index_name": index, "query": "Where is the ferry?"})
        return [node["score"] for node in found.raise_for_status().json()["results"]]

    default_scores = scores()
    changed = http.patch(f"/indexes/{index}", json={"fusion": "ranks"}).raise_for_status().json()
    assert (changed["fusion"], changed["chunk_tokens"]) == ("ranks", None)
    assert max(scores()) < 0.1 < max(default_scores)
    http.patch(f"/indexes/{index}", json={"fusion": None}).raise_for_status()
    assert scores() == default_scores
    listed = [each for each in http.get("/indexes", params={"details": True}).json() if each["index_name"] == index]
    assert [(each["documents"], each["chunks"]) for each in listed] == [(3, 3)]
