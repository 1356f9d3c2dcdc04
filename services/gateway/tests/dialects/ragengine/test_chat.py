"""The RAGEngine chat completion algorithm over HTTP, on the application with fakes.

The fakes count a word as a token.
"""

import json
from dataclasses import replace
from typing import Any

import httpx
import pytest
import structlog
from causeway_testing.gateway.answering import FakeGenerator
from gateway.domain import Chunk, Completion, Delta, Finish, Passage, Start, Usage
from gateway.main import build_app
from gateway.ports.answering import Prompt
from gateway.settings import Settings
from servicekit.errors import UpstreamRejected

PATH = "/v1/chat/completions"
SYSTEM = {"role": "system", "content": "You are a helpful assistant."}
WHAT = {"role": "user", "content": "What is a pivot?"}
JOINT = {"role": "assistant", "content": "A pivot is a joint."}
COMPLETION = b'{"id":"own", "choices" : [],"x":1.50}'
CHUNK = b'{"id":"own","choices":[],"x":1.50}'


def words(number: int) -> str:
    return " ".join(["w"] * number)


def node(number: int, size: int, similarity: float = 0.9) -> Passage:
    """Return a passage with the given number of tokens, including its name."""
    name = f"{number}.md"
    return Passage(f"p{number}", "docs", f"d{number}", name, name, words(size - 1), 1.0, dense_score=similarity)


def body(*messages: dict[str, Any], **members: Any) -> dict[str, Any]:
    return {"model": "gpt-4", "index_name": "docs", "messages": list(messages), **members}


def conversation(prompt: Prompt) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in prompt.messages]


def passed_on(prompt: Prompt) -> Any:
    return json.loads(prompt.passthrough_json)


@pytest.fixture
def passing(fakes: Any) -> Any:
    """Return the fakes with a model server that answers a request that is passed through."""
    fakes.generator.script = [[Completion(COMPLETION)]]
    return fakes


async def ask(client: httpx.AsyncClient, request: dict[str, Any]) -> Any:
    response = await client.post(PATH, json=request)
    assert response.status_code == 200, response.text
    return response.json()


# --- the specification's examples of messages -------------------------------------------------------------------


async def test_example_1_simple_user_query(client: httpx.AsyncClient, fakes: Any) -> None:
    """The retriever searches for the user's message. The context is first, and the system message is history."""
    answer = await ask(client, body(SYSTEM, WHAT))
    assert fakes.retriever.queries == ["What is a pivot?"]
    context, *rest = conversation(fakes.generator.prompts[0])
    assert context[0] == "system"
    assert "The ferry leaves at nine." in context[1]
    assert rest == [("system", SYSTEM["content"]), ("user", "What is a pivot?")]
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": "At nine."}
    assert answer["usage"] == {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}


async def test_example_2_multi_turn_conversation(client: httpx.AsyncClient, fakes: Any) -> None:
    """The retriever searches for the latest question. The order of the earlier messages does not change."""
    await ask(client, body(SYSTEM, WHAT, JOINT, {"role": "user", "content": "How do I install it?"}))
    assert fakes.retriever.queries == ["How do I install it?"]
    assert conversation(fakes.generator.prompts[0])[1:] == [
        ("system", SYSTEM["content"]),
        ("user", "What is a pivot?"),
        ("assistant", "A pivot is a joint."),
        ("user", "How do I install it?"),
    ]


async def test_example_3_multiple_consecutive_user_messages(client: httpx.AsyncClient, fakes: Any) -> None:
    """The user's messages since the latest answer are one question."""
    more = [{"role": "user", "content": text} for text in ("Tell me more about it.", "Specifically about load.")]
    await ask(client, body(SYSTEM, WHAT, JOINT, *more))
    question = "Tell me more about it.\n\nSpecifically about load."
    assert fakes.retriever.queries == [question]
    assert conversation(fakes.generator.prompts[0])[1:] == [
        ("system", SYSTEM["content"]),
        ("user", "What is a pivot?"),
        ("assistant", "A pivot is a joint."),
        ("user", question),
    ]


async def test_example_4_no_user_messages_after_assistant(client: httpx.AsyncClient, fakes: Any) -> None:
    """A request without a question is refused with 400, and the model is not called."""
    response = await client.post(PATH, json=body(WHAT, JOINT))
    assert response.status_code == 400
    assert response.json()["detail"] == "There must be a user prompt since the latest assistant message."
    assert fakes.generator.prompts == []


# --- the specification's pass-through cases ---------------------------------------------------------------------

TOOLS = [{"type": "function", "function": {"name": "get_weather"}}]
IMAGE = [
    {"type": "text", "text": "What's in this image?"},
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
]
BYPASSES = {
    "tools": body(WHAT, tools=TOOLS, tool_choice="auto", vendor={"x": 1.5}),
    "functions": body(WHAT, functions=[{"name": "f"}], function_call="auto"),
    "role": body({"role": "function", "content": "Weather data: 75°F"}, {"role": "user", "content": "Thanks!"}),
    "tool role": body(WHAT, {"role": "tool", "content": "75", "tool_call_id": "1"}, WHAT),
    "image": body({"role": "user", "content": IMAGE}, seed=7),
}


async def test_bypass_1_no_index_specified(client: httpx.AsyncClient, passing: Any) -> None:
    """The request and the answer are passed on byte for byte."""
    request = b'{ "model":"gpt-4","messages" : [{"role":"user","content":"Hello, how are you?"}],"top_p":0.50}'
    response = await client.post(PATH, content=request)
    assert response.content == COMPLETION
    assert passing.generator.prompts == [replace(passing.generator.prompts[0], passthrough_json=request)]
    assert passing.retriever.queries == []


@pytest.mark.parametrize("name", BYPASSES)
async def test_bypasses_2_to_4_reach_the_model_unchanged(
    client: httpx.AsyncClient, passing: Any, name: str
) -> None:
    """With tools, functions, other roles or content, the model gets the request without the gateway's members.

    The answer has null sources.
    """
    request = BYPASSES[name] | {"context_token_ratio": 0.3}
    response = await client.post(PATH, json=request)
    assert response.content == COMPLETION[:-1] + b',"source_nodes":null}'
    platform_members = ("index_name", "context_token_ratio")
    assert passed_on(passing.generator.prompts[0]) == {
        k: v for k, v in request.items() if k not in platform_members
    }
    assert passing.retriever.queries == []


@pytest.mark.parametrize("name", BYPASSES)
async def test_bypassed_streams_remain_unchanged(client: httpx.AsyncClient, fakes: Any, name: str) -> None:
    """The model server's chunks remain unchanged, except that the first one has null sources."""
    fakes.generator.script = [[Chunk(CHUNK)], [Chunk(CHUNK)]]
    response = await client.post(PATH, json=BYPASSES[name] | {"stream": True})
    assert response.headers["content-type"].startswith("text/event-stream")
    first = CHUNK[:-1] + b',"source_nodes":null}'
    assert response.content == b"data: %b\n\ndata: %b\n\ndata: [DONE]\n\n" % (first, CHUNK)
    assert passed_on(fakes.generator.prompts[0])["stream"] is True


@pytest.mark.parametrize("empty", [{"tools": []}, {"tools": None}, {"functions": []}])
async def test_empty_tools_do_not_cause_a_pass_through(
    client: httpx.AsyncClient, fakes: Any, empty: dict[str, Any]
) -> None:
    """A request with an empty list of tools is searched."""
    assert (await ask(client, body(WHAT) | empty))["source_nodes"]
    assert fakes.retriever.queries == ["What is a pivot?"]


async def test_bypass_5_nothing_selected(client: httpx.AsyncClient, passing: Any) -> None:
    """If no passage is found, or none is near and small enough, the model gets the original request."""
    passing.retriever.indexes["docs"] = []
    passing.retriever.indexes["far"] = [node(1, 10, 0.29)]
    passing.retriever.indexes["large"] = [node(1, 9000)]
    for index in ("docs", "far", "large"):
        response = await client.post(PATH, json=body(WHAT, index_name=index, temperature=0.5))
        assert response.content == COMPLETION[:-1] + b',"source_nodes":null}'
        sent = passed_on(passing.generator.prompts[-1])
        assert sent == {"model": "gpt-4", "messages": [WHAT], "temperature": 0.5}
    assert len(passing.retriever.queries) == 3


# --- the specification's token examples -------------------------------------------------------------------------


@pytest.fixture
def question_500() -> dict[str, Any]:
    """Return a message of 500 tokens."""
    return {"role": "user", "content": words(500)}


def parameters(fakes: Any) -> dict[str, Any]:
    sent: dict[str, Any] = json.loads(fakes.generator.prompts[-1].parameters_json)
    return sent


async def prompt_tokens(fakes: Any) -> int:
    return sum(len(message.text.split()) for message in fakes.generator.prompts[-1].messages)


async def test_max_tokens_1_not_specified(client: httpx.AsyncClient, fakes: Any, question_500: Any) -> None:
    """The model gets no limit, and the passages use their share of the context window."""
    fakes.retriever.indexes["docs"] = [node(number, 500) for number in range(20)]
    answer = await ask(client, body(question_500))
    assert parameters(fakes) == {}
    assert len(answer["source_nodes"]) == (8192 - 500 - 150) // 2 // 500


async def test_max_tokens_2_conservative(client: httpx.AsyncClient, fakes: Any, question_500: Any) -> None:
    """With a short answer, the model still gets one passage."""
    fakes.retriever.indexes["docs"] = [node(number, 500) for number in range(20)]
    answer = await ask(client, body(question_500, max_tokens=100))
    assert parameters(fakes) == {"max_tokens": 100}
    assert len(answer["source_nodes"]) == 1


async def test_max_tokens_3_excessive(client: httpx.AsyncClient, fakes: Any, question_500: Any) -> None:
    """The log reports the limit of 7692, which is 8192 minus 500. The model gets what the full prompt leaves."""
    fakes.retriever.indexes["docs"] = [node(number, 500) for number in range(20)]
    with structlog.testing.capture_logs() as lines:
        await ask(client, body(question_500, max_tokens=8000))
    assert [line["event"] for line in lines if line["log_level"] == "warning"] == [
        "max_tokens (8000) is greater than available context after prompt consideration. Setting to 7692."
    ]
    assert await prompt_tokens(fakes) > 500 + 7 * 500
    assert parameters(fakes)["max_tokens"] + await prompt_tokens(fakes) == 8192


async def test_max_tokens_3_excessive_and_nothing_selected(
    client: httpx.AsyncClient, passing: Any, question_500: Any
) -> None:
    """The model gets the limit that the log reports. All other members remain unchanged."""
    passing.retriever.indexes["docs"] = []
    request = body(question_500, max_tokens=8000, top_p=0.5)
    await ask(client, request)
    assert passed_on(passing.generator.prompts[0]) == {
        "model": "gpt-4",
        "messages": [question_500],
        "max_tokens": 7692,
        "top_p": 0.5,
    }


async def test_both_names_of_max_tokens_are_lowered(
    client: httpx.AsyncClient, fakes: Any, question_500: Any
) -> None:
    """The gateway lowers the limit under both of its names."""
    await ask(client, body(question_500, max_tokens=8000, max_completion_tokens=9000))
    limit = 8192 - await prompt_tokens(fakes)
    assert parameters(fakes) == {"max_tokens": limit, "max_completion_tokens": limit}


async def test_token_budget_example(client: httpx.AsyncClient, fakes: Any, question_500: Any) -> None:
    """The passages get 600 tokens, and the limit of 1000 does not change."""
    fakes.retriever.indexes["docs"] = [node(1, 300), node(2, 301), node(3, 299), node(4, 2), node(5, 1)]
    answer = await ask(client, body(question_500, max_tokens=1000, context_token_ratio=0.6))
    assert [source["node_id"] for source in answer["source_nodes"]] == ["p1", "p3", "p5"]
    assert parameters(fakes) == {"max_tokens": 1000}


async def test_a_prompt_as_long_as_the_window_is_accepted(client: httpx.AsyncClient, passing: Any) -> None:
    """A prompt with one more token is refused with 400."""
    passing.generator.window = 500
    assert (await ask(client, body({"role": "user", "content": words(500)})))["source_nodes"] is None
    response = await client.post(PATH, json=body(SYSTEM, {"role": "user", "content": words(496)}))
    assert response.status_code == 400
    assert response.json()["detail"] == "Prompt length exceeds context window."


# --- the answer -------------------------------------------------------------------------------------------------


async def test_source_nodes_have_the_members_of_retrieve(client: httpx.AsyncClient) -> None:
    """The sources have the members that `/retrieve` returns."""
    nodes = (await ask(client, body(WHAT)))["source_nodes"]
    assert nodes[0] == {
        "doc_id": "d1",
        "node_id": "p1",
        "text": "The ferry leaves at nine.",
        "score": 0.5,
        "dense_score": 0.5,
        "sparse_score": 2.0,
        "source": "both",
        "sourcefile": "guide-1.pdf",
        "sourcepage": "guide-1.pdf#page=1",
        "metadata": {},
    }
    assert len(nodes) == 2


@pytest.mark.parametrize("usage", [True, False])
async def test_a_stream_has_its_sources_on_the_first_chunk(client: httpx.AsyncClient, usage: bool) -> None:
    """The first chunk alone has the sources. The usage is sent only if `stream_options` requests it."""
    request = body(WHAT, stream=True, stream_options={"include_usage": usage})
    response = await client.post(PATH, json=request)
    *events, end = response.text.removesuffix("\n\n").split("\n\n")
    chunks = [json.loads(event.removeprefix("data: ")) for event in events]
    assert end == "data: [DONE]"
    assert [source["node_id"] for source in chunks[0]["source_nodes"]] == ["p1", "p2"]
    assert not any("source_nodes" in chunk for chunk in chunks[1:])
    totals = [chunk["usage"]["total_tokens"] for chunk in chunks if chunk.get("usage")]
    assert totals == ([10] if usage else [])
    assert "".join(c["delta"].get("content", "") for chunk in chunks for c in chunk["choices"]) == "At nine."


async def test_the_answer_has_n_choices(client: httpx.AsyncClient, fakes: Any) -> None:
    """The answer has the requested number of choices, each with its finish reason."""
    fakes.generator.script = [
        [Start(b"{}"), Delta(1, "b"), Delta(0, "a")],
        [Finish(1, "length"), Finish(0, "stop")],
        [Usage(1, 2)],
    ]
    answer = await ask(client, body(WHAT, n=2))
    assert parameters(fakes) == {"n": 2}
    assert [(c["message"]["content"], c["finish_reason"]) for c in answer["choices"]] == [
        ("a", "stop"),
        ("b", "length"),
    ]


async def test_the_requests_log_line_counts_the_nodes(client: httpx.AsyncClient, fakes: Any) -> None:
    """The request's log line counts the kept, the far and the too large nodes, with or without a stream.

    Without a search it has no counts.
    """
    fakes.retriever.indexes["docs"] = [node(1, 10), node(2, 10, 0.1), node(3, 10, 0.2), node(4, 9000)]
    for stream in (False, True):
        with structlog.testing.capture_logs() as lines:
            await client.post(PATH, json=body(WHAT, stream=stream))
        [line] = [entry for entry in lines if entry["event"] == "request"]
        assert (line["nodes_kept"], line["nodes_under_threshold"], line["nodes_too_large"]) == (1, 2, 1)
        fates = [entry["fate"] for entry in lines if entry["event"] == "node"]
        assert sorted(fates) == ["kept", "too large", "under threshold", "under threshold"]
    with structlog.testing.capture_logs() as lines:
        await client.post(PATH, json={"messages": [WHAT]})
    [line] = [entry for entry in lines if entry["event"] == "request"]
    assert "nodes_kept" not in line


async def test_the_deployments_limits_apply(fakes: Any) -> None:
    """The threshold and the assumed size of a passage come from the settings."""
    fakes.retriever.indexes["docs"] = [node(1, 60, 0.1), node(2, 50, 0.1)]
    for threshold, selected in ((-1.0, ["p2"]), (0.2, None)):
        settings = Settings(similarity_threshold=threshold, node_token_approximation=50)
        transport = httpx.ASGITransport(build_app(settings, fakes.services()))
        async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
            fakes.generator.script = FakeGenerator.saying("a").script if selected else [[Completion(COMPLETION)]]
            nodes = (await ask(client, body(WHAT, max_tokens=10)))["source_nodes"]
            assert (nodes and [source["node_id"] for source in nodes]) == selected


# --- known defects of other implementations ---------------------------------------------------------------------

OPENAI_MEMBERS = {
    "temperature": 0.0,
    "top_p": 0.9,
    "stop": ["\n", "END"],
    "seed": 42,
    "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}},
    "presence_penalty": -0.5,
    "frequency_penalty": 1.5,
    "user": "ann",
    "logprobs": True,
    "top_logprobs": 3,
    "logit_bias": {"50256": -100},
    "n": 2,
    "metadata": None,
    "service_tier": "flex",
    "guided_json": {"x": 1},
}


async def test_every_member_of_the_request_reaches_the_model(client: httpx.AsyncClient, fakes: Any) -> None:
    """With an index, the model gets all members, including null and vendor members."""
    await ask(client, body(WHAT, **OPENAI_MEMBERS))
    assert parameters(fakes) == OPENAI_MEMBERS
    assert fakes.generator.prompts[0].model == "gpt-4"


@pytest.mark.parametrize("index", ["docs", ""])
@pytest.mark.parametrize("stream", [True, False])
async def test_a_model_servers_429_is_passed_on(
    client: httpx.AsyncClient, fakes: Any, index: str, stream: bool
) -> None:
    """The client gets the model server's status, body and Retry-After."""
    own = '{"error":{"message":"Slow down.","type":"rate_limit_error","param":null,"code":null}}'
    fakes.generator.script = [UpstreamRejected("refused", status=429, body=own, retry_after=7)]
    response = await client.post(PATH, json=body(WHAT, index_name=index, stream=stream))
    assert (response.status_code, response.text, response.headers["retry-after"]) == (429, own, "7")


@pytest.mark.parametrize("reason", ["length", "content_filter", "tool_calls", "stop"])
async def test_the_finish_reason_is_the_models(client: httpx.AsyncClient, fakes: Any, reason: str) -> None:
    """The answer has the model's finish reason, streamed or not."""
    fakes.generator.script = [[Delta(0, "a"), Finish(0, reason), Usage(1, 1)]]
    assert (await ask(client, body(WHAT)))["choices"][0]["finish_reason"] == reason
    streamed = await client.post(PATH, json=body(WHAT, stream=True))
    assert f'"finish_reason":"{reason}"' in streamed.text


# --- bad input --------------------------------------------------------------------------------------------------

DEEP = b"[" * 50_000 + b"]" * 50_000
USER = b'"messages":[{"role":"user","content":"q"}]'
INVALID = "Invalid request format: "
RATIO = "Must be between 0.2 and 0.8."
BAD: list[tuple[bytes, int, str]] = [
    (b"", 400, "not valid JSON"),
    (b"{", 400, "not valid JSON"),
    (b"null", 400, "must be a JSON object"),
    (b'"text"', 400, "must be a JSON object"),
    (b'{"index_name":"nope",' + USER + b',"context_token_ratio":9}', 404, "No such index: 'nope' exists."),
    (b'{"index_name":"nope","messages":[]}', 404, "No such index: 'nope' exists."),
    (b'{"index_name":"nope","tools":[{}]}', 404, "No such index: 'nope' exists."),
    (b'{"index_name":"nope",' + USER + b"}", 404, "No such index: 'nope' exists."),
    (b'{"index_name":"a/b",' + USER + b"}", 400, "Invalid index name"),
    (b'{"index_name":7,' + USER + b"}", 400, "index_name must be a string"),
    (b'{"index_name":["docs"],' + USER + b"}", 400, "index_name must be a string"),
    (
        b'{"index_name":"docs",' + USER + b',"context_token_ratio":0.1}',
        400,
        f"Invalid context_token_ratio: 0.1. {RATIO}",
    ),
    (b'{"index_name":"docs",' + USER + b',"context_token_ratio":0.81}', 400, f"0.81. {RATIO}"),
    (b'{"index_name":"docs",' + USER + b',"context_token_ratio":"half"}', 400, f'"half". {RATIO}'),
    (b'{"index_name":"docs",' + USER + b',"context_token_ratio":-1e99}', 400, f"-1e99. {RATIO}"),
    (b'{"index_name":"docs",' + USER + b',"context_token_ratio":1e999}', 400, "context_token_ratio"),
    (b'{"index_name":"docs",' + USER + b',"context_token_ratio":NaN}', 400, "not valid JSON"),
    (b'{"index_name":"docs"}', 400, f"{INVALID}messages must be a non-empty list of objects."),
    (b'{"index_name":"docs","messages":null}', 400, f"{INVALID}messages must be a non-empty list of objects."),
    (b'{"index_name":"docs","messages":{}}', 400, f"{INVALID}messages must be a non-empty list of objects."),
    (b'{"index_name":"docs","messages":["q"]}', 400, f"{INVALID}messages must be a non-empty list of objects."),
    (b'{"index_name":"docs","messages":[{"content":"q"}]}', 400, f"{INVALID}messages must contain 'role'."),
    (
        b'{"index_name":"docs","messages":[{"role":"user"}]}',
        400,
        f"{INVALID}messages must contain 'content' for role 'user'.",
    ),
    (
        b'{"index_name":"docs","messages":[{"role":"user","content":""}]}',
        400,
        f"{INVALID}user messages must contain 'content'.",
    ),
    (b'{"index_name":"docs","messages":[{"role":"user","content":7}]}', 400, "must be a string or a list of parts"),
    (
        b'{"index_name":"docs","messages":[{"role":"user","content":" \\n"}]}',
        400,
        "There must be a user prompt since the latest assistant message.",
    ),
    (b'{"index_name":"docs","messages":[{"role":"user","content":"\\ud800"}]}', 400, "not valid JSON"),
    (b'{"index_name":"docs","messages":[{"role":"user","content":"\xff\xfe"}]}', 400, "not UTF-8"),
    (b'{"index_name":"docs","messages":[{"role":"user","content":1e999}]}', 400, "messages[0].content"),
    (b'{"index_name":"docs",' + USER + b',"max_tokens":-1}', 400, "max_tokens must be between 1 and"),
    (b'{"index_name":"docs",' + USER + b',"max_tokens":0}', 400, "max_tokens must be between 1 and"),
    (b'{"index_name":"docs",' + USER + b',"max_tokens":99999999999999999999}', 400, "max_tokens"),
    (b'{"index_name":"docs",' + USER + b',"max_tokens":1e999}', 400, "max_tokens"),
    (b'{"index_name":"docs",' + USER + b',"max_tokens":"7"}', 400, "max_tokens must be a whole number"),
    (b'{"index_name":"docs",' + USER + b',"max_completion_tokens":true}', 400, "max_completion_tokens must be"),
    (b'{"index_name":"docs",' + USER + b',"stream":"yes"}', 400, "stream must be a boolean"),
    (b'{"index_name":"docs",' + USER + b',"stream_options":[]}', 400, "stream_options must be an object"),
    (
        b'{"index_name":"docs",' + USER + b',"retrieval":{"top":-5}}',
        400,
        "retrieval.top must be between 1 and 1000",
    ),
    (b'{"index_name":"docs",' + USER + b',"retrieval":{"top":' + b"9" * 400 + b"}}", 400, "retrieval"),
    (b'{"index_name":"docs",' + USER + b',"retrieval":{"similarity_threshold":2}}', 400, "between -1 and 1"),
    (b'{"index_name":"docs",' + USER + b',"detectors":{"sideways":{}}}', 400, "detectors.sideways"),
    (b'{"index_name":"docs",' + USER + b',"x":' + DEEP + b"}", 400, "nested too deeply"),
    (b'{"index_name":' + DEEP + b"}", 400, "nested too deeply"),
    (b'{"index_name":"docs","messages":[{"role":"user","content":' + DEEP + b"}]}", 400, "nested too deeply"),
]


@pytest.fixture
def settings() -> Settings:
    return Settings(default_index="docs", max_body_bytes=1_000_000)


@pytest.mark.parametrize(
    ("content", "status", "message"), BAD, ids=[content[-40:].decode("latin-1") for content, _, _ in BAD]
)
async def test_bad_input_is_refused_with_the_reason(
    client: httpx.AsyncClient, fakes: Any, content: bytes, status: int, message: str
) -> None:
    """Both error formats have the reason, streamed or not, and the model is not called."""
    has_stream = not content.startswith(b'{"') or b'"stream"' in content
    for sent in (content,) if has_stream else (content, b'{"stream":true,' + content[1:]):
        response = await client.post(PATH, content=sent)
        assert response.status_code == status, response.text
        error = response.json()
        assert message in error["detail"]
        assert error["error"]["message"] == error["detail"]
        assert error["error"].keys() == {"message", "type", "param", "code"}
    assert fakes.generator.prompts == []


GOOD = [
    {"context_token_ratio": None},
    {"context_token_ratio": 0.2},
    {"context_token_ratio": 0.8},
    {"metadata": None},
    {"detectors": None, "retrieval": None, "stream_options": None, "max_tokens": None, "stop": None},
    {"tools": None, "functions": None},
    {"max_tokens": 2**31},
    {"user": "\u0000\U0001f600"},
    {"retrieval": {"mode": "text", "top": 1000, "similarity_threshold": -1}},
]


@pytest.mark.parametrize("members", GOOD)
async def test_unusual_valid_input_is_answered(client: httpx.AsyncClient, members: dict[str, Any]) -> None:
    """Null members and values at the bounds are accepted."""
    assert (await ask(client, body(WHAT) | members))["source_nodes"]


async def test_an_index_is_checked_before_a_blocked_question(client: httpx.AsyncClient, fakes: Any) -> None:
    """An unknown index is refused before the detectors run, also in a request with tools."""
    request = body(WHAT, index_name="nope", tools=TOOLS, detectors={"input": {"words": {}}})
    response = await client.post(PATH, json=request)
    assert response.status_code == 404
    assert fakes.guardrails.judged_texts == []
