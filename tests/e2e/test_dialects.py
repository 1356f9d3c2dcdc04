"""The versions of the RAG chat protocol on a running stack. The gateway's tests cover the content of each line."""

import json
from typing import Any

import httpx
import pytest

QUESTION = "When will the pivot bearing be renewed?"
SOURCE = "brannoch-bridge-maintenance-plan.pdf#page=4"
STREAM = {"stream": True}


def body(index: str, **more: Any) -> dict[str, Any]:
    context = {"overrides": {"index": index}}
    return {"messages": [{"role": "user", "content": QUESTION}], "context": context} | more


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
    ("more", "headers", "key"),
    [
        ({}, {}, "message"),
        ({"stream": False}, {}, "choices"),
        ({"sessionState": None}, {}, "sessionState"),
        ({}, {"x-ms-useragent": "ts-http-runtime/1.0.0-beta.1"}, "sessionState"),
    ],
)
def test_the_shared_path_recognises_the_client(
    http: httpx.Client, corpus: str, more: dict[str, Any], headers: dict[str, str], key: str
) -> None:
    """The shared path recognises the version by members of the request and by the client's header."""
    answer = http.post("/chat", json=body(corpus, **more), headers=headers).raise_for_status().json()
    assert key in answer


@pytest.mark.parametrize("path", ["/2024-01/ask", "/2024-01-28/chat", "/2024-04/chat", "/2026-04-10/chat"])
def test_errors_are_a_text(http: httpx.Client, path: str) -> None:
    """The error is a text in all versions but one."""
    response = http.post(path, json=body("no-such-index"))
    assert response.status_code == 404
    assert "no-such-index" in response.json()["error"]


def test_errors_of_the_typespec_stage_have_a_code(http: httpx.Client) -> None:
    """The error of the TypeSpec version has a code."""
    response = http.post("/2024-05-29/chat", json=body("no-such-index"))
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "not_found"
