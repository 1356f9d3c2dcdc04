import json
from typing import Any

import httpx
import pytest

QUESTION = "When will the pivot bearing be renewed?"
SOURCE = "brannoch-bridge-maintenance-plan.pdf#page=4"


def body(question: str, index: str, **overrides: Any) -> dict[str, Any]:
    return {
        "messages": [{"role": "user", "content": question}],
        "context": {"overrides": {"index": index, **overrides}},
    }


@pytest.mark.parametrize("mode", ["hybrid", "vectors", "text"])
def test_an_answer_cites_the_right_page(http: httpx.Client, corpus: str, mode: str) -> None:
    """In each retrieval mode, the right page is among the data points. With hybrid search, the answer cites it."""
    response = http.post("/2024-04/chat", json=body(QUESTION, corpus, retrieval_mode=mode)).raise_for_status()
    answer = response.json()
    assert SOURCE in answer["context"]["data_points"]["citations"]
    if mode == "hybrid":
        assert f"[{SOURCE}]" in answer["message"]["content"]
        assert "2027" in answer["message"]["content"]


@pytest.mark.parametrize("path", ["/chat/stream", "/2024-04/chat/stream"])
def test_a_streamed_answer_equals_the_unary_answer(http: httpx.Client, corpus: str, path: str) -> None:
    """The text of a streamed answer equals the text of a unary answer. The last line has the duration of each
    step.
    """
    with http.stream("POST", path, json=body(QUESTION, corpus)) as response:
        assert response.headers["content-type"] == "application/json-lines"
        lines = [json.loads(line) for line in response.iter_lines()]
    text = "".join(line["delta"].get("content", "") for line in lines)
    whole = http.post("/chat", json=body(QUESTION, corpus)).json()
    assert text == whole["message"]["content"]
    thoughts = {thought["title"]: thought["props"] for thought in lines[-1]["context"]["thoughts"]}
    assert thoughts["Results"]["duration_ms"] > 0
    assert thoughts["Answer"]["token_usage"]["total_tokens"] > 0


def test_an_answer_has_the_durations_of_its_steps(http: httpx.Client, corpus: str) -> None:
    """The Server-Timing header of a unary answer has the durations of the retrieval and the generation."""
    response = http.post("/chat", json=body(QUESTION, corpus))
    timing = response.headers["server-timing"]
    assert "retrieve;dur=" in timing
    assert "generate;dur=" in timing


def test_the_clients_trace_is_continued(http: httpx.Client, corpus: str) -> None:
    """A response has the trace id of the request's traceparent header, or a new one. This holds for errors, too."""
    trace = "0af7651916cd43dd8448eb211c80319c"
    headers = {"traceparent": f"00-{trace}-b7ad6b7169203331-01"}
    assert http.post("/chat", json=body("Hi?", corpus), headers=headers).headers["x-trace-id"] == trace
    assert len(http.post("/chat", content=b"{").headers["x-trace-id"]) == 32
    assert len(http.get("/nowhere").headers["x-trace-id"]) == 32


def test_an_unanswerable_question_gets_no_citation(http: httpx.Client, corpus: str) -> None:
    """An answer to a question that no document answers has no citation."""
    answer = http.post("/chat", json=body("Which zebra won the chess tournament on Neptune?", corpus)).json()
    assert "[" not in answer["message"]["content"]


@pytest.mark.parametrize(
    ("content", "status", "message"),
    [
        (b"{", 400, "JSON"),
        (b'{"messages": "x", "context": 3}', 400, "context"),
        (b'{"messages": [{"role": "user", "content": ""}]}', 400, "messages[0].content"),
        (b'{"messages": [{"role": "user", "content": 5}]}', 400, "messages[0].content"),
        (b'{"messages": "x", "context": {"overrides": {"index": "no-such-index"}}}', 404, "no-such-index"),
        (b'{"messages": "x", "context": {"overrides": {"index": "a/b"}}}', 400, "index"),
        (b'{"messages": "' + b"x" * 5_000_000 + b'"}', 413, "larger"),
    ],
)
@pytest.mark.parametrize("path", ["/chat", "/chat/stream"])
def test_invalid_requests_are_refused_with_the_reason(
    http: httpx.Client, path: str, content: bytes, status: int, message: str
) -> None:
    """An invalid request gets a 4xx with the reason, and the gateway stays alive."""
    response = http.post(path, content=content, headers={"content-type": "application/json"})
    assert response.status_code == status
    assert message in response.text
    assert http.get("/healthz").status_code == 200
