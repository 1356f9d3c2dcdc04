"""Features of a conversation with a scripted model server."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from causeway_testing.model_answers import Answer, Fault, refusal, stream
from causeway_testing.model_server import ModelServer, RecordedRequest
from causeway_testing.servers import eventually

StartStack = Callable[..., AbstractAsyncContextManager[Any]]

WINDOW = 3000
CLOSED_WITHIN = 0.25
HISTORY = [
    {"role": "user", "content": "When is high water at Kelsay?"},
    {"role": "assistant", "content": "At six in the morning [tides.md]."},
]
REWRITTEN = "high water at Kelsay on Sundays"
PIECES = ["At ", "half ", "past six.", "\n\n<", "<And on", " Mondays?>", ">\n<<Where is", " Kelsay?>>"]
TEXT = "At half past six."
QUESTIONS = ["And on Mondays?", "Where is Kelsay?"]
STREAMED: dict[str, dict[str, Any]] = {
    "/2024-01/chat": {"stream": True},
    "/2024-04/chat/stream": {},
    "/2024-05-29/chat/stream": {},
    "/2026-04-10/chat/stream": {},
}


@pytest.fixture
async def stack(tmp_path: Path, start_stack: StartStack) -> AsyncIterator[tuple[Any, ModelServer]]:
    """Start a stack with one document and a model with a small window."""
    async with ModelServer.started() as model:
        model.models["stub"] = {"max_model_len": WINDOW}
        environment = {
            "CAUSEWAY_OPENAI_BASE_URL": model.url,
            "CAUSEWAY_OPENAI_MODELS": "stub",
            "CAUSEWAY_MODEL": "stub",
        }
        async with start_stack(tmp_path / "data", **environment) as running:
            job = await running.ingest()
            assert job["state"] == "succeeded", job
            yield running, model


def body(*history: dict[str, str], **overrides: Any) -> dict[str, Any]:
    messages = [*history, {"role": "user", "content": "And on Sundays?"}]
    return {"messages": messages, "context": {"overrides": {"index": "tides", **overrides}}}


def thoughts(context: Any) -> dict[str, Any]:
    return {thought["title"]: thought for thought in context["thoughts"]}


def lines_of(text: str) -> list[Any]:
    """Return the lines of a stream. All dialects have the same members at the same place then."""
    lines = [json.loads(line) for line in text.splitlines()]
    assert not [line for line in lines if "error" in line], text
    return [line["choices"][0] if "choices" in line else line for line in lines]


def piece(line: Any) -> str:
    delta = line.get("delta")
    return (delta if isinstance(delta, str) else (delta or {}).get("content")) or ""


def completion_requests(model: ModelServer) -> list[RecordedRequest]:
    return [request for request in model.requests if request.path.endswith("completions")]


async def test_the_model_rewrites_a_follow_up_question(
    stack: tuple[Any, ModelServer],
) -> None:
    """The model first writes a search query, with few tokens and temperature 0, and then answers the question. If
    the first call fails, the question is the query.
    """
    running, model = stack
    model.script(stream(["high water at ", "Kelsay on Sundays"]), stream(["Later."]))
    answer = await running.http.post("/2024-04/chat", json=body(*HISTORY, query_rewriting=True))
    result = answer.raise_for_status().json()
    assert result["message"]["content"] == "Later."
    query = thoughts(result["context"])["Generated search query"]
    assert query["description"] == REWRITTEN
    assert query["props"]["token_usage"]["total_tokens"] > 0
    assert query["props"]["duration_ms"] > 0
    assert "rewrite;dur=" in answer.headers["server-timing"]
    first, second = [request.json() for request in completion_requests(model)]
    assert (first["temperature"], first["max_tokens"]) == (0, 100)
    assert "six in the morning" in first["messages"][-1]["content"]
    assert second["messages"][-1]["content"].startswith("And on Sundays?\n\nSources:\n")

    model.script(refusal(400, "This model takes no temperature."), stream(["Later."]))
    answer = await running.http.post("/2024-04/chat", json=body(*HISTORY, query_rewriting=True))
    query = thoughts(answer.raise_for_status().json()["context"])["Generated search query"]
    assert query["description"] == "And on Sundays?"
    assert "temperature" not in answer.text
    assert len(query["props"]["notes"]) == 1


async def test_the_output_detectors_judge_the_search_query(stack: tuple[Any, ModelServer]) -> None:
    """The output detectors judge the search query, because the client receives it."""
    running, model = stack
    detectors = {"output": {"ban_substrings": {"substrings": ["Kelsay"], "action": "redact"}}}
    model.script(stream([REWRITTEN]), stream(["Later, at Kelsay."]))
    overrides = {"query_rewriting": True, "detectors": detectors}
    result = (await running.http.post("/2024-04/chat", json=body(*HISTORY, **overrides))).raise_for_status().json()
    query = thoughts(result["context"])["Generated search query"]
    assert query["description"] == "And on Sundays?"
    assert "detectors" in query["props"]["notes"][0]
    assert "Kelsay" not in result["message"]["content"]


async def test_follow_up_questions_are_not_in_the_text(stack: tuple[Any, ModelServer]) -> None:
    """In every dialect, the text contains no follow-up questions, although the model splits their marks between
    tokens. The detectors judge the questions.
    """
    running, model = stack
    detectors = {"output": {"ban_substrings": {"substrings": ["Mondays"], "action": "redact"}}}
    for path, members in STREAMED.items():
        for options, questions in (({}, QUESTIONS), ({"detectors": detectors}, ["And on ", QUESTIONS[1]])):
            overrides = {"suggest_followup_questions": True, **options}
            model.script(stream(PIECES, pace=0.002))
            answer = await running.http.post(path, json=body(**overrides) | members)
            lines = lines_of(answer.raise_for_status().text)
            assert "".join(map(piece, lines)) == TEXT, path
            found = lines[-1]["context"]["followup_questions"]
            assert [each.startswith(start) for each, start in zip(found, questions, strict=True)] == [True, True]
            assert "Mondays" not in found[0] or not options, path
    assert "<<" in completion_requests(model)[-1].json()["messages"][0]["content"]
    model.script(stream(PIECES))
    whole = (await running.http.post("/2024-04/chat", json=body(suggest_followup_questions=True))).json()
    assert whole["message"]["content"] == TEXT
    assert whole["context"]["followup_questions"] == QUESTIONS


async def test_a_long_conversation(stack: tuple[Any, ModelServer]) -> None:
    """The gateway leaves out the oldest exchanges, and keeps the system prompt, the question and the sources. It
    refuses a question that is too long, and on OpenAI's route also a conversation that is too long.
    """
    running, model = stack
    history = [
        {"role": role, "content": f"{number} " + "word " * 300}
        for number in range(12)
        for role in ("user", "assistant")
    ]
    answer = await running.http.post("/2024-04/chat", json=body(*history))
    prompt = thoughts(answer.raise_for_status().json()["context"])["Prompt"]
    [request] = completion_requests(model)
    first, *remaining, question = request.json()["messages"]
    assert first["role"] == "system"
    assert "High water at Kelsay is at six" in question["content"]
    assert remaining == history[len(history) - len(remaining) :]
    assert 0 < len(remaining) < len(history)
    assert prompt["props"]["messages_left_out"] == len(history) - len(remaining)
    assert len(prompt["props"]["notes"]) == 1

    refused = await running.http.post("/2024-04/chat", json=body() | {"messages": "word " * 4000})
    assert (refused.status_code, refused.json()["error"]) == (400, "Prompt length exceeds context window.")
    conversation = {"index_name": "tides", "messages": [*history, {"role": "user", "content": "And on Sundays?"}]}
    refused = await running.http.post("/v1/chat/completions", json={"model": "stub", **conversation})
    assert refused.status_code == 400
    assert len(completion_requests(model)) == 1


async def test_a_client_that_leaves_during_the_rewriting(stack: tuple[Any, ModelServer]) -> None:
    """If the client disconnects during the rewriting of the query, the connection to the model server is closed,
    and the gateway makes no second call.
    """
    running, model = stack
    model.script(Answer((b"",), before=(Fault.HANG,)))
    request = asyncio.ensure_future(
        running.http.post("/2024-04/chat/stream", json=body(*HISTORY, query_rewriting=True))
    )
    await eventually(lambda: len(completion_requests(model)) == 1, what="the request for a query")
    disconnected_at = time.monotonic()
    request.cancel()
    [recorded] = completion_requests(model)
    await eventually(lambda: recorded.closed_at is not None, what="the close")
    assert recorded.closed_at is not None
    assert recorded.closed_at - disconnected_at < CLOSED_WITHIN
    await asyncio.sleep(0.3)
    assert len(completion_requests(model)) == 1
