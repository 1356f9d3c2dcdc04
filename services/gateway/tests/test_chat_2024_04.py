import json
from typing import Any

import httpx
import pytest
from gateway.domain import Delta
from gateway.fakes import FakeGenerator
from servicekit.errors import Unavailable

QUESTION = {"messages": [{"role": "user", "content": "When does the ferry leave?"}]}


def ask(overrides: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return QUESTION | {"context": {"overrides": overrides or {}}} | more


async def test_an_answer_in_one_piece(client: httpx.AsyncClient) -> None:
    """Message, context with data points and thoughts, and the session state as it was sent."""
    response = await client.post("/2024-04/chat", json=ask(session_state={"id": 7}))
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    body = response.json()
    assert body["message"] == {
        "content": "At nine.",
        "function_call": None,
        "role": "assistant",
        "tool_calls": None,
    }
    assert body["session_state"] == {"id": 7}
    points = body["context"]["data_points"]
    assert points["citations"] == ["guide-1.pdf#page=1", "guide-2.pdf#page=2"]
    assert points["text"][0] == "guide-1.pdf#page=1: The ferry leaves at nine."
    titles = [thought["title"] for thought in body["context"]["thoughts"]]
    assert titles == ["Original user query", "Generated search query", "Results", "Prompt", "Answer"]
    assert all("duration_ms" in thought["props"] for thought in body["context"]["thoughts"])
    assert body["context"]["thoughts"][-1]["props"]["token_usage"] == {
        "prompt_tokens": 7,
        "completion_tokens": 3,
        "total_tokens": 10,
    }
    assert "retrieve;dur=" in response.headers["server-timing"]


async def test_a_streamed_answer(client: httpx.AsyncClient) -> None:
    """First the context with the role, then the text piece by piece, last the complete thoughts; each line ended."""
    response = await client.post("/chat/stream", json=ask(session_state="s"))
    assert response.headers["content-type"] == "application/json-lines"
    assert response.text.endswith("\n")
    lines = [json.loads(line) for line in response.text.splitlines()]
    first, *middle, last = lines
    assert first["delta"] == {"role": "assistant"}
    assert first["context"]["data_points"]["citations"]
    assert "".join(line["delta"]["content"] for line in middle) == "At nine."
    assert all("error" not in line for line in lines)
    assert "data_points" not in last["context"]
    assert last["context"]["thoughts"][-1]["title"] == "Answer"
    assert last["session_state"] == "s"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"{", "not valid JSON"),
        (b"[]", "must be a JSON object"),
        (b'{"messages":' + b"[" * 10_000, "nested too deeply"),
        (b"\xff", "not valid JSON"),
        (b"{}", "messages"),
        (b'{"messages":[]}', "messages"),
        (b'{"messages":{}}', "messages"),
        (b'{"messages":[3]}', "messages[0]"),
        (b'{"messages":[{"role":"user","content":3}]}', "messages[0].content"),
        (b'{"messages":[{"role":"user","content":"  "}]}', "messages[0].content"),
        (b'{"messages":[{"role":"system","content":"x"}]}', "messages[0].role"),
        (b'{"messages":[{"role":"assistant","content":"x"}]}', "messages[0].role"),
        (b'{"messages":"x","context":[]}', "context"),
        (b'{"messages":"x","context":{"overrides":{"top":"many"}}}', "context.overrides.top"),
        (b'{"messages":"x","context":{"overrides":{"top":true}}}', "context.overrides.top"),
        (b'{"messages":"x","context":{"overrides":{"top":0}}}', "context.overrides.top"),
        (
            b'{"messages":"x","context":{"overrides":{"retrieval_mode":"magic"}}}',
            "context.overrides.retrieval_mode",
        ),
        (b'{"messages":"x","context":{"overrides":{"detectors":{"sideways":{}}}}}', "detectors.sideways"),
    ],
)
@pytest.mark.parametrize("path", ["/chat", "/chat/stream"])
async def test_a_bad_request_is_a_400_that_names_the_field(
    client: httpx.AsyncClient, path: str, body: bytes, said: str
) -> None:
    """Whatever is wrong with the body, the answer is a 400 whose error is a string that says where."""
    response = await client.post(path, content=body, headers={"content-type": "application/json"})
    assert response.status_code == 400
    assert said in response.json()["error"]


async def test_null_and_empty_overrides_are_as_good_as_absent(client: httpx.AsyncClient) -> None:
    """Clients send null for settings that were not touched."""
    response = await client.post("/chat", json=ask({"top": None, "retrieval_mode": "", "unknown": [1]}))
    assert response.status_code == 200


async def test_flat_overrides_are_read(client: httpx.AsyncClient) -> None:
    """Some clients put the settings straight into the context."""
    response = await client.post("/chat", json=QUESTION | {"context": {"top": 1}})
    assert len(response.json()["context"]["data_points"]["text"]) == 1


async def test_an_unknown_index_is_a_404(client: httpx.AsyncClient) -> None:
    """Streaming or not, before any line was sent."""
    for path in ("/chat", "/chat/stream"):
        response = await client.post(path, json=ask({"index": "nowhere"}))
        assert response.status_code == 404
        assert response.json() == {"error": "No such index: 'nowhere' exists."}


async def test_another_media_type_is_a_415(client: httpx.AsyncClient) -> None:
    """The body must be JSON."""
    response = await client.post("/chat", content=b"x", headers={"content-type": "text/plain"})
    assert response.status_code == 415


async def test_a_failure_before_the_first_word_is_a_status(fakes: Any, client: httpx.AsyncClient) -> None:
    """A model that cannot be reached is a 503 with Retry-After, also when the answer would have been streamed."""
    fakes.generator.script = [Unavailable("The model is away.", retry_after=3)]
    response = await client.post("/chat/stream", json=ask())
    assert response.status_code == 503
    assert response.headers["retry-after"] == "3"
    assert response.json() == {"error": "The model is away."}


async def test_a_failure_after_the_first_word_is_a_line(fakes: Any, client: httpx.AsyncClient) -> None:
    """The stream ends with a line that holds the error and nothing else."""
    fakes.generator.script = [[Delta(0, "At ")], Unavailable("The model is away.")]
    response = await client.post("/chat/stream", json=ask())
    assert response.status_code == 200
    lines = [json.loads(line) for line in response.text.splitlines()]
    assert lines[-1] == {"error": "The model is away."}
    assert lines[1]["delta"]["content"] == "At "


async def test_detections_stand_in_the_context(fakes: Any, client: httpx.AsyncClient) -> None:
    """A requested side always has its key; a redacted secret is not in the answer, however it was split."""
    fakes.generator.script = FakeGenerator.saying("the sec", "ret", " is out").script
    detectors = {"output": {"words": {"action": "redact"}}, "input": {"words": {}}}
    for path in ("/chat", "/chat/stream"):
        response = await client.post(path, json=ask({"detectors": detectors}))
        assert "secret" not in response.text.replace('"text":"secret"', "").replace('"detection":"secret"', "")
        last = json.loads(response.text.splitlines()[-1])
        assert last["context"]["detections"]["input"] == []
        [entry] = last["context"]["detections"]["output"]
        assert entry["choice_index"] == 0
        assert (entry["results"][0]["start"], entry["results"][0]["end"]) == (4, 10)


async def test_a_blocked_answer_ends_with_the_fallback(fakes: Any, client: httpx.AsyncClient) -> None:
    """Nothing of the secret is out, and the answer ends as any other."""
    fakes.generator.script = FakeGenerator.saying("the sec", "ret", " is out").script
    body = ask({"detectors": {"output": {"words": {"action": "block"}}}})
    lines = [json.loads(line) for line in (await client.post("/chat/stream", json=body)).text.splitlines()]
    text = "".join(line["delta"].get("content", "") for line in lines)
    assert text == "the The answer was withheld because it contains something that may not be shown."
    assert "thoughts" in lines[-1]["context"]


async def test_a_blocked_question_is_a_400(fakes: Any, client: httpx.AsyncClient) -> None:
    """The model is not asked, and the message says what was found."""
    body = {
        "messages": [{"role": "user", "content": "my secret?"}],
        "context": {"overrides": {"detectors": {"input": {"words": {}}}}},
    }
    response = await client.post("/chat", json=body)
    assert response.status_code == 400
    assert "secret" in response.json()["error"]
    assert fakes.generator.prompts == []
