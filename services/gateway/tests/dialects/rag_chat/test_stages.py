"""Rules for every stage of the RAG chat protocol. The numbers are those of the decisions in docs/protocols.md."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from causeway_testing.gateway.answering import FakeGenerator
from gateway.domain import Action, Delta, Detector, Detectors, Finish, FollowUps, Start, Usage
from servicekit.errors import Internal, NotFound, RateLimited, Unavailable

QUESTION = "When does the ferry leave?"


@dataclass(frozen=True)
class Stage:
    """The paths of a stage, and the positions of the common members in its answers."""

    name: str
    unary: str
    stream: str
    session_state: str = "session_state"
    media: str = "application/json-lines"
    streamed: dict[str, Any] = field(default_factory=dict)
    has_choices: bool = False

    def inside(self, body: Any) -> Any:
        return body["choices"][0] if self.has_choices else body

    def text(self, body: Any) -> str:
        text = body["output_text"] if "output_text" in body else self.inside(body)["message"]["content"]
        assert isinstance(text, str)
        return text

    def piece(self, line: Any) -> str:
        if "type" in line:
            return str(line.get("delta", ""))
        return self.inside(line)["delta"].get("content") or ""

    def error(self, body: Any) -> str:
        message = body["error"]["message"] if self.name == "2024-05-29" else body["error"]
        assert isinstance(message, str)
        return message

    def body(self, overrides: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
        messages = [{"role": "user", "content": QUESTION}]
        return {"messages": messages, "context": {"overrides": overrides or {}}} | more


STREAM = {"stream": True}
STAGES = [
    Stage("2024-01", "/2024-01/chat", "/2024-01/chat", streamed=STREAM, has_choices=True),
    Stage("2024-01 ask", "/2024-01/ask", "/2024-01/ask", streamed=STREAM, has_choices=True),
    Stage("2024-01-28", "/2024-01-28/chat", "/2024-01-28/chat", streamed=STREAM, has_choices=True),
    Stage("2024-04", "/2024-04/chat", "/2024-04/chat/stream"),
    Stage("2024-05-29", "/2024-05-29/chat", "/2024-05-29/chat/stream", "sessionState", "application/jsonl"),
    Stage("2026-04-10", "/2026-04-10/chat", "/2026-04-10/chat/stream"),
]
every = pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.name)


@pytest.fixture
def ask(client: httpx.AsyncClient) -> Callable[..., Any]:
    async def unary(stage: Stage, overrides: dict[str, Any] | None = None, **more: Any) -> httpx.Response:
        return await client.post(stage.unary, json=stage.body(overrides, **more))

    return unary


@pytest.fixture
def stream(client: httpx.AsyncClient) -> Callable[..., Any]:
    async def streamed(stage: Stage, overrides: dict[str, Any] | None = None, **more: Any) -> list[Any]:
        response = await client.post(stage.stream, json=stage.body(overrides, **more) | stage.streamed)
        assert response.status_code == 200, response.text
        assert response.headers["content-type"] == stage.media
        assert response.content.endswith(b"\n")
        return [json.loads(line) for line in response.content[:-1].split(b"\n")]

    return streamed


@every
async def test_1_every_line_is_one_object_and_is_ended(stage: Stage, stream: Any, fakes: Any) -> None:
    """Each line is one object with a line feed, even if the text contains line ends, and after an error."""
    text = 'a\n\r\u2028\u2029\x00"\\ \U0001f600\x85'
    fakes.generator.script = FakeGenerator.saying(text).script
    lines = await stream(stage)
    assert all(isinstance(line, dict) for line in lines)
    assert "".join(map(stage.piece, lines)) == text
    fakes.generator.script = [[Delta(0, "At ")], Unavailable("The model is away.")]
    lines = await stream(stage)
    assert stage.error(lines[-1]) == "The model is away."
    assert list(lines[-1]) == ["error"]


@every
async def test_2_the_first_line_has_the_role_and_the_context(stage: Stage, stream: Any) -> None:
    """The first line has the role, the data points, the thoughts so far and the session state."""
    first = (await stream(stage, **{stage.session_state: {"id": 7}}))[0]
    if stage.name == "2026-04-10":
        assert list(first) == ["type", "context", "session_state"]
        assert first["type"] == "response.context"
    else:
        assert stage.inside(first)["delta"] == {"role": "assistant"}
    context = stage.inside(first)["context"]
    assert context["data_points"]["text"][0] == "guide-1.pdf#page=1: The ferry leaves at nine."
    titles = [thought["title"] for thought in context["thoughts"]]
    assert titles == ["Original user query", "Generated search query", "Results", "Prompt"]
    assert stage.inside(first)[stage.session_state] == {"id": 7}


@every
async def test_3_the_last_line_has_all_thoughts_and_no_data_points(stage: Stage, stream: Any) -> None:
    """The last line has no text. It has data points only in 2026-04-10, where clients replace the context."""
    last = (await stream(stage))[-1]
    assert stage.piece(last) == ""
    context = stage.inside(last)["context"]
    assert ("data_points" in context) is (stage.name == "2026-04-10")
    answer = context["thoughts"][-1]
    assert answer["title"] == "Answer"
    assert answer["props"]["first_token_ms"] >= 0
    assert answer["props"]["token_usage"]["total_tokens"] == 10


@every
async def test_3_only_the_context_has_follow_up_questions(stage: Stage, ask: Any, stream: Any, fakes: Any) -> None:
    """The context of the last line has the follow-up questions. Without questions, the key is absent."""
    assert "followup_questions" not in stage.inside((await stream(stage))[-1])["context"]
    fakes.generator.script.insert(-1, [FollowUps(("Why?", "Where from?"))])
    lines = await stream(stage)
    assert stage.inside(lines[-1])["context"]["followup_questions"] == ["Why?", "Where from?"]
    assert "".join(map(stage.piece, lines)) == "At nine."
    body = (await ask(stage)).json()
    assert stage.inside(body)["context"]["followup_questions"] == ["Why?", "Where from?"]
    assert stage.text(body) == "At nine."


@every
async def test_4_answers_without_an_error_have_no_such_key(stage: Stage, ask: Any, stream: Any) -> None:
    """A successful answer has no key `error`, because a client throws an exception if the key exists."""
    assert "error" not in (await ask(stage)).json()
    assert all("error" not in line for line in await stream(stage))


@every
@pytest.mark.parametrize(
    ("failure", "status", "message"),
    [
        (NotFound("No such index: 'x' exists."), 404, "No such index: 'x' exists."),
        (RateLimited("Too much.", retry_after=7), 429, "Too much."),
        (Unavailable("The model is away.", retry_after=3), 503, "The model is away."),
        (Internal(), 500, "unexpected error"),
    ],
)
async def test_5_an_error_before_the_first_word_is_a_status(
    stage: Stage, client: httpx.AsyncClient, fakes: Any, failure: Any, status: int, message: str
) -> None:
    """The status and the body have the stage's format, also in place of a stream. The response has Retry-After."""
    fakes.generator.script = [failure]
    for path, more in ((stage.unary, {}), (stage.stream, stage.streamed)):
        response = await client.post(path, json=stage.body() | more)
        assert response.status_code == status
        assert response.headers["content-type"] == "application/json"
        assert message in stage.error(response.json())
        expected = {429: "7", 503: "3"}.get(status)
        assert response.headers.get("retry-after") == expected


@every
async def test_5_invalid_requests_have_their_status(stage: Stage, client: httpx.AsyncClient) -> None:
    """A wrong method, media type, size and body each have their status, and an error in the stage's shape."""
    wrong: list[tuple[int, httpx.Response]] = [
        (405, await client.get(stage.unary)),
        (415, await client.post(stage.unary, content=b"x", headers={"content-type": "text/plain"})),
        (413, await client.post(stage.unary, json=stage.body(x="x" * 30_000))),
        (400, await client.post(stage.unary, content=b"{", headers={"content-type": "application/json"})),
        (400, await client.post(stage.unary, json={})),
    ]
    for status, response in wrong:
        assert response.status_code == status
        assert stage.error(response.json())


@every
async def test_5_an_unknown_path_is_a_404(stage: Stage, client: httpx.AsyncClient) -> None:
    """An unknown path causes a 404 in the shape of the stage whose prefix it has."""
    response = await client.post(f"{stage.unary}/nowhere", json=stage.body())
    assert response.status_code == 404
    assert "/nowhere" in stage.error(response.json())


@every
async def test_5_a_blocked_question_is_a_400_that_names_it(
    stage: Stage, client: httpx.AsyncClient, fakes: Any
) -> None:
    """The error names the finding, and the model is not called."""
    fakes.policy = Detectors(input=(Detector("words", Action.BLOCK),))
    body = stage.body() | {"messages": [{"role": "user", "content": "my secret?"}]}
    response = await client.post(stage.unary, json=body)
    assert response.status_code == 400
    assert "secret" in stage.error(response.json())
    assert fakes.generator.prompts == []


@every
async def test_5_a_blocked_answer_ends_with_the_fallback(stage: Stage, ask: Any, stream: Any, fakes: Any) -> None:
    """The fallback text is the last piece. The usual last line of the stage follows it."""
    fakes.policy = Detectors(output=(Detector("words", Action.BLOCK),))
    fakes.generator.script = FakeGenerator.saying("the sec", "ret", " is out").script
    lines = await stream(stage)
    text = "".join(map(stage.piece, lines))
    assert text.startswith("the The answer was withheld")
    pieces = [stage.piece(line) for line in lines if stage.piece(line)]
    assert pieces[-1].startswith("The answer was withheld")
    body = (await ask(stage)).json()
    assert stage.text(body).startswith("the The answer was withheld")
    if stage.has_choices:
        assert stage.inside(lines[-1])["finish_reason"] == "content_filter"
        assert stage.inside(body)["finish_reason"] == "content_filter"


@every
async def test_5_a_failure_after_the_first_token(stage: Stage, client: httpx.AsyncClient, fakes: Any) -> None:
    """The status is a 424 in 2024-05-29, whose client repeats each 5xx, and a 503 in other stages."""
    fakes.generator.script = [[Delta(0, "At ")], Unavailable("The model is away.")]
    response = await client.post(stage.unary, json=stage.body())
    assert response.status_code == (424 if stage.name == "2024-05-29" else 503)
    assert stage.error(response.json()) == "The model is away."


@every
async def test_6_data_points_have_text_and_citations(stage: Stage, ask: Any) -> None:
    """Each passage is one line that begins with its name. Each name is listed once, for the links of the answer."""
    points = stage.inside((await ask(stage)).json())["context"]["data_points"]
    assert points == {
        "text": [
            "guide-1.pdf#page=1: The ferry leaves at nine.",
            "guide-2.pdf#page=2: The bridge opens at noon.",
        ],
        "images": [],
        "citations": ["guide-1.pdf#page=1", "guide-2.pdf#page=2"],
    }


@every
async def test_7_thoughts_are_the_steps_in_their_order(stage: Stage, ask: Any, fakes: Any) -> None:
    """Each step has its time. The search has its settings, the guardrails their findings, the answer its usage."""
    fakes.policy = Detectors(output=(Detector("words", Action.REPORT),), input=(Detector("words", Action.REPORT),))
    fakes.generator.script = FakeGenerator.saying("a secret").script
    body = (await ask(stage, {"retrieval_mode": "text", "semantic_captions": True})).json()
    thoughts = stage.inside(body)["context"]["thoughts"]
    assert [thought["title"] for thought in thoughts] == [
        "Original user query",
        "Generated search query",
        "Results",
        "Prompt",
        "Guardrails",
        "Answer",
    ]
    assert all(set(thought) == {"title", "description", "props"} for thought in thoughts)
    assert all(thought["props"]["duration_ms"] >= 0 for thought in thoughts)
    assert thoughts[0]["description"] == QUESTION
    assert thoughts[1]["props"]["has_vector"] is False
    assert thoughts[1]["props"]["use_semantic_captions"] is True
    assert thoughts[4]["description"] == ["output: secret"]
    assert thoughts[5]["props"]["token_usage"] == {"prompt_tokens": 7, "completion_tokens": 1, "total_tokens": 8}
    prompt = thoughts[3]["description"]
    if stage.name == "2026-04-10":
        assert prompt[0]["role"] == "system"
        assert prompt[-1]["content"].startswith(QUESTION)
    else:
        assert prompt[0].startswith("{'role': 'system', 'content': ")
        assert prompt[-1].startswith("{'role': 'user', 'content': ")


@every
async def test_8_results_have_every_key(stage: Stage, ask: Any) -> None:
    """A result has the keys of the protocol's examples, and the dense and the sparse score."""
    results = stage.inside((await ask(stage)).json())["context"]["thoughts"][2]["description"]
    assert [result["id"] for result in results] == ["p1", "p2"]
    assert results[0] == {
        "id": "p1",
        "content": "The ferry leaves at nine.",
        "embedding": None,
        "imageEmbedding": None,
        "category": None,
        "sourcepage": "guide-1.pdf#page=1",
        "sourcefile": "guide-1.pdf",
        "oids": [],
        "groups": [],
        "captions": [],
        "index": "docs",
        "score": 0.5,
        "dense_score": 0.5,
        "sparse_score": 2.0,
        "reranker_score": None,
    }


@every
@pytest.mark.parametrize(
    "state",
    [
        b'{"a" : [1.0,1e400,12345678901234567890]}',
        b'"s"',
        b'""',
        b"{}",
        b"7",
        b'{"deep":[[[{}]]],"e":"\\ud83d\\ude00"}',
    ],
)
async def test_9_the_session_state_remains_unchanged(stage: Stage, client: httpx.AsyncClient, state: bytes) -> None:
    """The first and the last line, or the complete answer, have the session state byte for byte."""
    echoed = b'"%b":%b' % (stage.session_state.encode(), state)
    headers = {"content-type": "application/json"}
    whole = await client.post(stage.unary, content=b'{"messages":"hi",%b}' % echoed, headers=headers)
    assert whole.content.count(echoed) == 1
    switch = b'"stream":true,' if stage.streamed else b""
    streamed = await client.post(
        stage.stream, content=b'{%b"messages":"hi",%b}' % (switch, echoed), headers=headers
    )
    first, *middle, last = streamed.content.splitlines()
    assert echoed in first
    assert echoed in last
    assert not any(echoed in line for line in middle)


@every
@pytest.mark.parametrize("state", [{}, {"session_state": None, "sessionState": None}])
async def test_9_a_missing_session_state_becomes_a_new_name(
    stage: Stage, ask: Any, stream: Any, state: dict[str, Any]
) -> None:
    """Each answer has a new name, and all lines of one answer have the same name."""
    names = [stage.inside((await ask(stage, **state)).json())[stage.session_state] for _ in range(2)]
    lines = await stream(stage, **state)
    first, last = (stage.inside(line)[stage.session_state] for line in (lines[0], lines[-1]))
    assert first == last
    assert all(isinstance(name, str) and name for name in (*names, first))
    assert len({*names, first}) == 3


@every
async def test_9_a_session_state_on_several_lines(stage: Stage, client: httpx.AsyncClient) -> None:
    """A session state with line breaks does not break a line of the stream."""
    switch = b'"stream":true,' if stage.streamed else b""
    body = b'{%b"messages":"hi","%b":{\n"a":\r\n1}}' % (switch, stage.session_state.encode())
    response = await client.post(stage.stream, content=body, headers={"content-type": "application/json"})
    last = json.loads(response.text.splitlines()[-1])
    assert stage.inside(last)[stage.session_state] == {"a": 1}


@pytest.mark.parametrize("stage", [stage for stage in STAGES if stage.has_choices], ids=lambda stage: stage.name)
async def test_10_answers_have_the_model_servers_metadata(stage: Stage, ask: Any, stream: Any, fakes: Any) -> None:
    """The answer has the model server's metadata and filters, and each piece has its own filters."""
    safe = {"hate": {"filtered": False, "severity": "safe"}}
    prompt = [{"prompt_index": 0, "content_filter_results": safe}]
    filtered = json.dumps({"content_filter_results": safe}).encode()
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10, "prompt_tokens_details": {"cached": 1}}
    fakes.generator.script = [
        [Start(json.dumps({"prompt_filter_results": prompt, "id": "", "model": None}).encode())],
        [Start(b'{"id":"chatcmpl-8","created":1706301586,"model":"gpt-35-turbo","system_fingerprint":"fp_1"}')],
        [Delta(0, "At "), Delta(0, "nine.", b"", filtered)],
        [Finish(0, "length", filtered), Usage(7, 3, json.dumps(usage).encode())],
    ]
    known = {
        "id": "chatcmpl-8",
        "created": 1706301586,
        "model": "gpt-35-turbo",
        "system_fingerprint": "fp_1",
    }
    body = (await ask(stage)).json()
    assert body | known == body
    assert body["object"] == "chat.completion"
    assert body["usage"] == usage
    assert body["prompt_filter_results"] == prompt
    assert body["choices"][0]["content_filter_results"] == safe
    assert body["choices"][0]["finish_reason"] == "length"
    first, one, two, last = await stream(stage)
    assert list(first) == ["choices", "object"]
    for line in (one, two, last):
        assert line | known == line
        assert line["object"] == "chat.completion.chunk"
    assert one["choices"][0]["content_filter_results"] == {}
    assert two["choices"][0]["content_filter_results"] == safe
    assert last["choices"][0]["content_filter_results"] == safe
    assert last["choices"][0]["finish_reason"] == "length"
    assert last["usage"] == usage
    assert last["prompt_filter_results"] == prompt


@every
async def test_11_the_prompt_has_system_history_and_question(
    stage: Stage, client: httpx.AsyncClient, fakes: Any
) -> None:
    """The prompt is a system message, the history and the question with its sources.

    The gateway also calls the model if there are no sources.
    """
    history = [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Good day."}]
    body = stage.body()
    await client.post(stage.unary, json=body | {"messages": history + body["messages"]})
    system, *middle, question = fakes.generator.prompts[0].messages
    assert system.role == "system"
    assert [message.text for message in middle] == ([] if "ask" in stage.name else ["Hello.", "Good day."])
    assert question.text.startswith(f"{QUESTION}\n\nSources:\nguide-1.pdf#page=1: The ferry leaves at nine.\n")
    response = await client.post(stage.unary, json=stage.body({"index": "empty"}))
    assert response.status_code == 200
    assert len(fakes.generator.prompts) == 2


@every
async def test_12_answers_are_not_compressed(stage: Stage, client: httpx.AsyncClient) -> None:
    """A stream is not compressed, and every answer and error has the client's trace id."""
    trace = "0af7651916cd43dd8448eb211c80319c"
    headers = {"accept-encoding": "gzip, br", "traceparent": f"00-{trace}-b7ad6b7169203331-01"}
    response = await client.post(stage.stream, json=stage.body() | stage.streamed, headers=headers)
    assert "content-encoding" not in response.headers
    assert response.headers["x-trace-id"] == trace
    assert (await client.post(stage.unary, json={}, headers=headers)).headers["x-trace-id"] == trace


@every
async def test_system_messages_are_refused_by_some_stages(stage: Stage, client: httpx.AsyncClient) -> None:
    """A stage without system messages refuses them with a 400 that names the message."""
    body = stage.body()
    messages = [{"role": "system", "content": "Be brief."}, *body["messages"]]
    response = await client.post(stage.unary, json=body | {"messages": messages})
    if stage.name in ("2024-01", "2024-01 ask", "2024-05-29"):
        assert response.status_code == 200
    else:
        assert response.status_code == 400
        assert "messages[0].role" in stage.error(response.json())


@every
async def test_other_choices_are_ignored(stage: Stage, ask: Any, stream: Any, fakes: Any) -> None:
    """The answer has only the first choice."""
    fakes.generator.script = [[Delta(1, "B"), Delta(0, "A")], [Finish(0, "stop"), Finish(1, "stop")]]
    assert stage.text((await ask(stage)).json()) == "A"
    assert "".join(map(stage.piece, await stream(stage))) == "A"
