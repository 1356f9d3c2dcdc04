"""Routes that chat front ends use besides the chat."""

import time
import uuid
from pathlib import Path

import httpx
import pytest

CORPUS = Path(__file__).resolve().parents[2] / "examples" / "corpus"
PDF = "brannoch-bridge-maintenance-plan.pdf"


def test_a_front_end_can_start(http: httpx.Client) -> None:
    """The routes that a front end requests at its start respond with the expected settings."""
    assert http.get("/auth_setup").raise_for_status().json()["useLogin"] is False
    assert http.get("/config").raise_for_status().json()["streamingEnabled"] is True
    assert http.get("/.auth/me").status_code == 404


def test_a_citation_opens_its_document(http: httpx.Client, corpus: str) -> None:
    """The path of a citation returns the original with its content type, complete or in ranges."""
    original = (CORPUS / PDF).read_bytes()
    whole = http.get(f"/content/{PDF}", params={"index": corpus})
    assert whole.status_code == 200, whole.text
    assert whole.content == original
    assert whole.headers["content-type"] == "application/pdf"
    assert whole.headers["content-disposition"].startswith("inline")
    half = len(original) // 2
    parts = [
        http.get(f"/content/{PDF}", params={"index": corpus}, headers={"range": f"bytes={start}-{end}"})
        for start, end in ((0, half - 1), (half, len(original)))
    ]
    assert [part.status_code for part in parts] == [206, 206]
    assert b"".join(part.content for part in parts) == original
    beyond = http.get(f"/content/{PDF}", params={"index": corpus}, headers={"range": f"bytes={len(original)}-"})
    assert beyond.status_code == 416
    head = http.head(f"/content/{PDF}", params={"index": corpus})
    assert (head.headers["content-length"], head.content) == (str(len(original)), b"")
    again = http.get(f"/content/{PDF}", params={"index": corpus}, headers={"if-none-match": whole.headers["etag"]})
    assert again.status_code == 304


def test_every_citation_has_a_document(http: httpx.Client, corpus: str) -> None:
    """The part of a citation before the fragment is the path of its document."""
    body = {"messages": "Where are staff trained?", "context": {"overrides": {"index": corpus, "top": 10}}}
    citations = http.post("/2024-04/chat", json=body).json()["context"]["data_points"]["citations"]
    assert citations
    for citation in citations:
        path = citation.partition("#")[0]
        assert http.head(f"/content/{path}", params={"index": corpus}).status_code == 200, citation


def test_the_life_of_an_upload(http: httpx.Client) -> None:
    """A user's document is uploaded, listed, found, opened and deleted."""
    name = f"my notes {uuid.uuid4().hex}.md"
    word = f"quokka{uuid.uuid4().hex}"
    response = http.post("/upload", files={"file": (name, f"# Notes\n\nThe {word} sleeps at noon.\n".encode())})
    assert response.status_code == 200, response.text
    assert name in http.get("/list_uploaded").json()
    answer = http.post("/2024-04/chat", json={"messages": f"When does the {word} sleep?"}).json()
    assert name in answer["context"]["data_points"]["citations"]
    assert word in http.get(f"/content/{name}").text
    deleted = http.post("/delete_uploaded", json={"filename": name})
    assert deleted.status_code == 200, deleted.text
    assert name not in http.get("/list_uploaded").json()
    assert http.get(f"/content/{name}").status_code == 404
    assert http.post("/delete_uploaded", json={"filename": name}).status_code == 404
    answer = http.post("/2024-04/chat", json={"messages": f"When does the {word} sleep?"}).json()
    assert name not in answer["context"]["data_points"]["citations"]


@pytest.mark.parametrize("content", [b"%PDF-1.7\nbroken", b"\x00\x01\x02" * 100])
def test_an_unreadable_upload_is_refused(http: httpx.Client, content: bytes) -> None:
    """An unreadable upload gets a 422 with an error message, and is not listed."""
    name = f"{uuid.uuid4().hex}.pdf"
    response = http.post("/upload", files={"file": (name, content)})
    assert response.status_code == 422, response.text
    assert isinstance(response.json()["error"], str)
    assert name not in http.get("/list_uploaded").json()


@pytest.mark.parametrize("path", ["/2024-01/chat", "/2024-04/chat", "/2026-04-10/chat"])
def test_a_conversation_keeps_its_session_state(http: httpx.Client, corpus: str, path: str) -> None:
    """The first answer has a session state, and later answers have the same. The history uses it as the id."""

    def state(previous: str | None) -> str:
        context = {"overrides": {"index": corpus, "top": 1}}
        body = {
            "messages": "When will the pivot bearing be renewed?",
            "context": context,
            "session_state": previous,
        }
        answer = http.post(path, json=body).raise_for_status().json()
        given = answer["choices"][0]["session_state"] if "choices" in answer else answer["session_state"]
        assert isinstance(given, str)
        return given

    session = state(None)
    assert session
    assert state(session) == session
    assert state(None) != session
    assert http.post("/chat_history", json={"id": session, "answers": [["?", {}]]}).status_code == 201
    assert http.get(f"/chat_history/sessions/{session}").json()["answers"] == [["?", {}]]
    assert http.delete(f"/chat_history/sessions/{session}").status_code == 204


def test_saved_conversations(http: httpx.Client) -> None:
    """A saved conversation is listed first, is unchanged, and can be deleted."""
    session = str(uuid.uuid4())
    answers = [["When does the ferry leave?", {"message": {"content": "At nine. " * 1000}, "session_state": None}]]
    assert http.post("/chat_history", json={"id": session, "answers": answers}).status_code == 201
    time.sleep(0.01)
    other = str(uuid.uuid4())
    assert http.post("/chat_history", json={"id": other, "answers": answers}).status_code == 201
    listed = http.get("/chat_history/sessions", params={"count": 2}).json()["sessions"]
    assert [each["id"] for each in listed] == [other, session]
    assert http.get(f"/chat_history/sessions/{session}").json()["answers"] == answers
    for each in (session, other):
        assert http.delete(f"/chat_history/sessions/{each}").status_code == 204
        assert http.get(f"/chat_history/sessions/{each}").status_code == 404
