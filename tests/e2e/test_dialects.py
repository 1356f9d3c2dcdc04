"""The versions of the RAG chat protocol on a running stack. The tests of the gateway cover the content of the
lines.
"""

import json
from typing import Any

import httpx
import pytest

QUESTION = "When will the pivot bearing be renewed?"
SOURCE = "brannoch-bridge-maintenance-plan.pdf#page=4"
STREAM = {"stream": True}


def body(index: str, **members: Any) -> dict[str, Any]:
    context = {"overrides": {"index": index}}
    return {"messages": [{"role": "user", "content": QUESTION}], "context": context} | members


def text_of(answer: Any) -> str:
    text = answer.get("output_text") or answer.get("choices", [answer])[0]["message"]["content"]
    assert isinstance(text, str)
    return text


def piece_of(line: Any) -> str:
    if "type" in line:
        return str(line.get("delta", ""))
    return line.get("choices", [line])[0]["delta"].get("content") or ""


@pytest.mark.parametrize(
    ("unary", "streamed", "switch", "media"),
    [
        ("/2024-01/chat", "/2024-01/chat", STREAM, "application/json-lines"),
        ("/2024-01/ask", "/2024-01/ask", STREAM, "application/json-lines"),
        ("/ask", "/ask", STREAM, "application/json-lines"),
        ("/2024-01-28/chat", "/2024-01-28/chat", STREAM, "application/json-lines"),
        ("/2024-04/chat", "/2024-04/chat/stream", {}, "application/json-lines"),
        ("/2024-05-29/chat", "/2024-05-29/chat/stream", {}, "application/jsonl"),
        ("/2026-04-10/chat", "/2026-04-10/chat/stream", {}, "application/json-lines"),
    ],
)
def test_a_stage_answers_in_one_piece_and_line_by_line(
    http: httpx.Client, corpus: str, unary: str, streamed: str, switch: dict[str, Any], media: str
) -> None:
    """A unary and a streamed answer have the same text with the right citation."""
    whole = http.post(unary, json=body(corpus)).raise_for_status()
    assert whole.headers["content-type"] == "application/json"
    assert f"[{SOURCE}]" in text_of(whole.json())
    with http.stream("POST", streamed, json=body(corpus) | switch) as response:
        assert response.headers["content-type"] == media
        lines = [json.loads(line) for line in response.iter_lines()]
    assert "".join(map(piece_of, lines)) == text_of(whole.json())


@pytest.mark.parametrize(
    ("members", "headers", "key"),
    [
        ({}, {}, "message"),
        ({"stream": False}, {}, "choices"),
        ({"sessionState": None}, {}, "sessionState"),
        ({}, {"x-ms-useragent": "ts-http-runtime/1.0.0-beta.1"}, "sessionState"),
    ],
)
def test_the_shared_path_recognises_the_client(
    http: httpx.Client, corpus: str, members: dict[str, Any], headers: dict[str, str], key: str
) -> None:
    """At the shared path, members of the request and the header of the client determine the version."""
    answer = http.post("/chat", json=body(corpus, **members), headers=headers).raise_for_status().json()
    assert key in answer


@pytest.mark.parametrize("path", ["/2024-01/ask", "/2024-01-28/chat", "/2024-04/chat", "/2026-04-10/chat"])
def test_an_error_is_a_string(http: httpx.Client, path: str) -> None:
    """In all versions except one, the member `error` is a string."""
    response = http.post(path, json=body("no-such-index"))
    assert response.status_code == 404
    assert "no-such-index" in response.json()["error"]


def test_an_error_of_the_typespec_version_has_a_code(http: httpx.Client) -> None:
    """In the TypeSpec version, the member `error` is an object with a code."""
    response = http.post("/2024-05-29/chat", json=body("no-such-index"))
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "not_found"
