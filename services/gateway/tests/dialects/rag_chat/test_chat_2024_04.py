import json
from typing import Any

import httpx
import pytest
from causeway_testing.gateway.answering import FakeGenerator
from gateway.domain import Action, Detector, Detectors
from gateway.main import build_app
from gateway.settings import Settings

QUESTION: dict[str, Any] = {"messages": [{"role": "user", "content": "When does the ferry leave?"}]}


def ask(overrides: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return QUESTION | {"context": {"overrides": overrides or {}}} | more


async def test_an_answer_in_one_piece(client: httpx.AsyncClient) -> None:
    """The answer has the message, the data points, the thoughts and the session state of the request."""
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
    """The role and the context are first, then the text in pieces, then all thoughts.

    Each line ends with a line feed.
    """
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


MESSAGE: dict[str, Any] = {"content": str, "function_call": type(None), "role": str, "tool_calls": type(None)}


async def test_the_examples_answer_in_one_piece(client: httpx.AsyncClient, has: Any, check_context: Any) -> None:
    """The answer has every key of the specification's example, with its type."""
    example = QUESTION | {"context": {}, "session_state": None}
    body = (await client.post("/chat", json=example)).json()
    assert list(body) == ["message", "context", "session_state"]
    has(body["message"], MESSAGE)
    assert body["session_state"]  # the name of a new session replaces null
    check_context(body["context"])
    prompt = body["context"]["thoughts"][3]["description"]
    assert prompt[0].startswith("{'role': 'system', 'content': ")


async def test_the_examples_streamed_answer(client: httpx.AsyncClient, has: Any, check_context: Any) -> None:
    """The chunks have every key of the specification's example, with its type."""
    lines = [json.loads(line) for line in (await client.post("/chat/stream", json=QUESTION)).text.splitlines()]
    assert list(lines[0]) == ["delta", "context", "session_state"]
    check_context(lines[0]["context"])
    for line in lines[1:-1]:
        assert list(line) == ["delta"]
        has(line["delta"], MESSAGE | {"role": type(None)})


async def test_settings_reach_the_model(client: httpx.AsyncClient, fakes: Any) -> None:
    """The model gets its parameters, and the retriever searches the index in the requested mode."""
    fakes.retriever.indexes["other"] = []
    overrides = {
        "index": "other",
        "model": "m",
        "temperature": 0.7,
        "seed": 7,
        "max_tokens": 100,
        "reasoning_effort": "low",
        "retrieval_mode": "text",
    }
    body = (await client.post("/chat", json=ask(overrides))).json()
    prompt = fakes.generator.prompts[0]
    assert prompt.model == "m"
    assert json.loads(prompt.parameters_json) == {
        "temperature": 0.7,
        "seed": 7,
        "max_tokens": 100,
        "reasoning_effort": "low",
    }
    assert body["context"]["thoughts"][1]["props"]["has_vector"] is False
    assert body["context"]["data_points"] == {"text": [], "images": [], "citations": []}


async def test_without_a_default_index_nothing_is_searched(fakes: Any, settings: Settings) -> None:
    """The thoughts have no results, and the retriever is not called."""
    app = build_app(settings.model_copy(update={"default_index": ""}), fakes.services())
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://g") as http:
        body = (await http.post("/chat", json=QUESTION)).json()
    assert [thought["title"] for thought in body["context"]["thoughts"]] == [
        "Original user query",
        "Prompt",
        "Answer",
    ]
    assert fakes.retriever.queries == []


async def test_a_prompt_that_is_too_long_is_a_400(client: httpx.AsyncClient, fakes: Any) -> None:
    """A prompt that is too long is refused before the stream begins."""
    fakes.generator.window = 5
    response = await client.post("/chat/stream", json=QUESTION)
    assert response.status_code == 400
    assert response.json() == {"error": "Prompt length exceeds context window."}


async def test_the_deployments_detectors_apply(client: httpx.AsyncClient, fakes: Any) -> None:
    """The deployment's detectors judge a request without detectors, and the context has their findings."""
    fakes.policy = Detectors(output=(Detector("words", Action.REDACT),))
    fakes.generator.script = FakeGenerator.saying("a secret").script
    body = (await client.post("/chat", json=QUESTION)).json()
    assert body["message"]["content"] == "a [REDACTED]"
    assert body["context"]["detections"]["output"][0]["results"][0]["detector_id"] == "words"
    assert "input" not in body["context"]["detections"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{", "not valid JSON"),
        (b"[]", "must be a JSON object"),
        (b'{"messages":' + b"[" * 10_000, "nested too deeply"),
        (b"\xff", "not valid JSON"),
        (b"{}", "messages"),
        (b'{"input":[3]}', "input[0]"),
        (b'{"messages":"","input":"x"}', "messages[0].content"),
        (b'{"messages":[{"role":"user","content":"x"},{"role":"user","content":"\\ud800"}]}', "not valid JSON"),
        (b'{"messages":"x","context":{"overrides":{"seed":1e400}}}', "context cannot be read"),
        (b'{"messages":"x","context":{"overrides":{"seed":%b}}}' % (b"9" * 5000), "context cannot be read"),
        (b'{"messages":"x","context":{"overrides":{"temperature":3}}}', "context.overrides.temperature"),
        (b'{"messages":"x","context":{"overrides":{"temperature":NaN}}}', "not valid JSON"),
        (b'{"messages":"\xff"}', "messages cannot be read"),
        (b'{"messages":"x","session_state":{"\xff":1}}', "session_state is not text in UTF-8"),
        (b'{"messages":[{"role":"system","content":"x"}]}', "messages[0].role"),
        (b'{"messages":"x","context":[]}', "context"),
        (b'{"messages":"x","context":{"overrides":{"top":0}}}', "context.overrides.top"),
        (b'{"messages":"x","context":{"overrides":{"detectors":{"sideways":{}}}}}', "detectors.sideways"),
    ],
)
async def test_a_bad_request_is_a_400_that_names_the_field(
    client: httpx.AsyncClient, body: bytes, message: str
) -> None:
    """The error is a string that names the field, also on the path of streams."""
    for path in ("/chat", "/chat/stream"):
        response = await client.post(path, content=body, headers={"content-type": "application/json"})
        assert response.status_code == 400
        assert message in response.json()["error"]


async def test_flat_overrides_are_read(client: httpx.AsyncClient) -> None:
    """Overrides directly in the context are read."""
    response = await client.post("/chat", json=QUESTION | {"context": {"top": 1}})
    assert len(response.json()["context"]["data_points"]["text"]) == 1


async def test_an_unknown_index_is_a_404(client: httpx.AsyncClient) -> None:
    """An unknown index causes a 404, also instead of a stream."""
    for path in ("/chat", "/chat/stream"):
        response = await client.post(path, json=ask({"index": "nowhere"}))
        assert response.status_code == 404
        assert response.json() == {
            "error": "No such index: 'nowhere' exists. Add a document to it, or select another index: `index` of "
            "the front end's profile, or CAUSEWAY_DEFAULT_INDEX."
        }


async def test_detections_are_in_the_context(fakes: Any, client: httpx.AsyncClient) -> None:
    """Each requested direction has its key, and the answer does not contain the redacted secret."""
    fakes.generator.script = FakeGenerator.saying("the sec", "ret", " is out").script
    detectors = {"output": {"words": {"action": "redact"}}, "input": {"words": {}}}
    for path in ("/chat", "/chat/stream"):
        response = await client.post(path, json=ask({"detectors": detectors}))
        # The fake calls the detection by the word that it found.
        assert "secret" not in response.text.replace('"detection":"secret"', "").replace("output: secret", "")
        last = json.loads(response.text.splitlines()[-1])
        assert last["context"]["detections"]["input"] == []
        [entry] = last["context"]["detections"]["output"]
        assert entry["choice_index"] == 0
        assert (entry["results"][0]["start"], entry["results"][0]["end"]) == (4, 10)
