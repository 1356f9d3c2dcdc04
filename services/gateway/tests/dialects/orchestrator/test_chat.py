"""Chat completions with detections: requests and answers. The conformance cases compare whole answers."""

import json
from typing import Any

import httpx
import pytest
from causeway_testing.gateway.answering import FakeGenerator
from gateway.dialects.exchange import ChatRequest
from gateway.dialects.openai.chat import OpenAiChat
from gateway.dialects.orchestrator.chat import OrchestratorChat
from gateway.domain import Action, Chunking, Completion, Delta, DetectorKind, Finish, InputScope, Start, Turn, Usage
from gateway.frontends.profiles import Frontend, GuardrailsWire
from servicekit.errors import CausewayError, Unavailable
from servicekit.principal import LOCAL

PATH = "/api/v2/chat/completions-detection"
HI = [{"role": "user", "content": "Hi"}]
WORDS: dict[str, Any] = {"output": {"words": {}}}
ADR, REFERENCE = GuardrailsWire.ADR, GuardrailsWire.ORCHESTRATOR


def parsed(body: dict[str, Any], wire: GuardrailsWire = ADR, **frontend: Any) -> Turn:
    dialect = OrchestratorChat(OpenAiChat(), wire)
    request = ChatRequest(json.dumps(body).encode(), LOCAL, Frontend(**frontend))
    return dialect.parse(request).turn


def test_the_two_wire_formats_have_different_defaults() -> None:
    """The ADR judges the conversation and splits at sentences.

    The reference judges the last message and splits by detector. In both, a blocked answer is empty.
    """
    adr = parsed({"model": "m", "messages": HI, "detectors": WORDS})
    assert (adr.detection.chunking, adr.detection.input_scope) == (Chunking.SENTENCE, InputScope.CONVERSATION)
    reference = parsed({"model": "m", "messages": HI, "detectors": WORDS}, REFERENCE)
    assert (reference.detection.chunking, reference.detection.input_scope) == (Chunking.DETECTORS, InputScope.LAST)
    assert adr.detection.blocked_is_empty
    assert reference.detection.blocked_is_empty


def test_a_request_overrides_the_defaults() -> None:
    """A request sets the chunking and the input scope, and the model server does not receive these two members.

    Without output detectors, the answer is not split.
    """
    body = {"model": "m", "messages": HI, "detectors": WORDS, "seed": 7}
    turn = parsed({**body, "chunking": "minimal", "input_scope": "all"})
    assert (turn.detection.chunking, turn.detection.input_scope) == (Chunking.MINIMAL, InputScope.ALL)
    assert json.loads(turn.parameters_json) == {"seed": 7}
    assert parsed({**body, "detectors": {"input": {"words": {}}}}).detection.chunking is None


def test_unknown_stream_options_reach_the_model_server() -> None:
    """An option that the gateway does not use itself reaches the model server."""
    options = {"include_usage": True, "continuous_usage_stats": True}
    turn = parsed({"model": "m", "messages": HI, "detectors": WORDS, "stream_options": options})
    assert json.loads(turn.parameters_json)["stream_options"] == options


def test_detectors_have_the_kinds_that_their_direction_supports() -> None:
    """In the ADR, input and output detectors may judge conversations. In the reference, only output detectors may.

    With an index, an output detector may also judge passages.
    """
    body = {"model": "m", "messages": HI, "detectors": {"input": {"a": {}}, "output": {"b": {}}}}
    conversation = frozenset((DetectorKind.CONTENTS, DetectorKind.CHAT))
    assert parsed(body).detection.kinds == (("a", conversation), ("b", conversation))
    assert parsed(body, REFERENCE).detection.kinds == (
        ("a", frozenset((DetectorKind.CONTENTS,))),
        ("b", conversation),
    )
    kinds = parsed({**body, "index_name": "docs"}).detection.kinds
    assert kinds == (("a", conversation), ("b", conversation | {DetectorKind.CONTEXT_DOC}))


def test_input_blocks_and_output_reports_by_default() -> None:
    """By default, an input detector blocks and an output detector reports. A request can set the action."""
    chosen = {"input": {"a": {}}, "output": {"b": {}, "c": {"action": "redact"}}}
    turn = parsed({"model": "m", "messages": HI, "detectors": chosen})
    actions = [detector.action for detector in (*turn.detectors.input, *turn.detectors.output)]
    assert actions == [Action.BLOCK, Action.REPORT, Action.REDACT]


@pytest.mark.parametrize(
    ("body", "details"),
    [
        ({"messages": HI}, "missing field `model`"),
        ({"model": "", "messages": HI}, "`model` must not be empty"),
        ({"model": "m"}, "missing field `messages`"),
        ({"model": "m", "messages": []}, "`messages` must not be empty"),
        ({"model": "m", "messages": HI}, "`detectors` is required"),
        ({"model": "m", "messages": HI, "detectors": WORDS, "chunking": "x"}, "`chunking` must be one of"),
        ({"model": "m", "messages": HI, "detectors": {"sideways": {}}}, "detectors.sideways is not a direction"),
    ],
)
def test_invalid_requests_are_refused(body: dict[str, Any], details: str) -> None:
    """The error has the wording of the reference implementation, if it has such an error."""
    with pytest.raises(CausewayError, match=details):
        parsed(body)


async def test_an_answer_in_one_piece(client: httpx.AsyncClient, fakes: Any) -> None:
    """The answer has the findings beside the model server's choices."""
    fakes.generator.script = FakeGenerator.words("A secret.")
    response = await client.post(PATH, json={"model": "fake", "messages": HI, "detectors": WORDS})
    body = response.json()
    assert response.status_code == 200
    assert body["choices"] == [
        {"index": 0, "message": {"role": "assistant", "content": "A secret."}, "finish_reason": "stop"}
    ]
    [entry] = body["detections"]["output"]
    assert (entry["choice_index"], entry["results"][0]["start"], entry["results"][0]["end"]) == (0, 2, 8)
    assert body["warnings"] == [{"type": "UNSUITABLE_OUTPUT", "message": "Unsuitable output detected."}]


async def test_an_invalid_answer_in_one_piece_is_a_failure_of_the_model_server(
    client: httpx.AsyncClient, fakes: Any
) -> None:
    """The client of a stream gets the error of an unavailable model server."""
    body = {"model": "fake", "messages": HI, "detectors": {"input": {"words": {}}}, "stream": True}
    for choices in ([1], "x", [{"message": "x"}], [{"message": {"tool_calls": [1]}}]):
        fakes.generator.script = [[Completion(json.dumps({"choices": choices}).encode())]]
        assert "Check the model server." in (await client.post(PATH, json=body)).text


async def test_an_answer_in_one_piece_instead_of_a_stream(client: httpx.AsyncClient, fakes: Any) -> None:
    """The answer of a model server that does not stream becomes one event with the indexes of a chunk."""
    body = {"model": "fake", "messages": HI, "detectors": {"input": {"words": {}}}, "stream": True}
    choices = [{"message": {"tool_calls": [{"id": "a"}]}}, {"message": {"content": "hi"}}]
    fakes.generator.script = [[Completion(json.dumps({"choices": choices}).encode())]]
    first = (await client.post(PATH, json=body)).text.splitlines()[0]
    assert json.loads(first.removeprefix("data: "))["choices"] == [
        {"index": 0, "delta": {"tool_calls": [{"id": "a", "index": 0}]}},
        {"index": 1, "delta": {"content": "hi"}},
    ]


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_from_an_index_has_its_passages(
    client: httpx.AsyncClient, fakes: Any, stream: bool
) -> None:
    """The answer or the first event of a stream has the passages, as on OpenAI's routes."""
    fakes.generator.script = FakeGenerator.words("One. ", "Two.")
    body = {"model": "fake", "messages": HI, "stream": stream, "index_name": "docs", "detectors": WORDS}
    text = (await client.post(PATH, json=body)).text
    events = [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.endswith("}")]
    nodes = [event["source_nodes"] for event in events if "source_nodes" in event]
    assert nodes == [events[0]["source_nodes"]]
    assert [node["sourcepage"] for node in nodes[0]]
    del body["index_name"]
    assert "source_nodes" not in (await client.post(PATH, json=body)).text


async def test_a_blocked_question_does_not_reach_the_model(client: httpx.AsyncClient, fakes: Any) -> None:
    """The model is not called, and the question's tokens are counted."""
    question = [{"role": "user", "content": "a secret"}]
    body = {"model": "fake", "messages": question, "detectors": {"input": {"words": {}}}}
    answer = (await client.post(PATH, json=body)).json()
    assert answer["choices"] == []
    assert answer["usage"] == {"prompt_tokens": 2, "completion_tokens": 0, "total_tokens": 2}
    assert [warning["type"] for warning in answer["warnings"]] == ["UNSUITABLE_INPUT"]
    assert fakes.generator.prompts == []


async def test_a_failure_of_the_model_server_in_a_stream(client: httpx.AsyncClient, fakes: Any) -> None:
    """The stream has one error event and ends with the end marker."""
    fakes.generator.script = [[Start(), Delta(0, "One. ")], Unavailable("it broke")]
    body = {"model": "fake", "messages": HI, "stream": True, "chunking": "minimal", "detectors": WORDS}
    text = (await client.post(PATH, json=body)).text
    assert text.count("event: error") == text.count("data: [DONE]") == 1
    assert text.endswith("data: [DONE]\n\n")


async def test_a_stream_has_input_findings_first_and_usage_last(client: httpx.AsyncClient, fakes: Any) -> None:
    """The first event has the findings of the question, and the last one the usage.

    Each event before the usage has the role.
    """
    fakes.generator.script = [[Start()], [Delta(0, "One. ")], [Delta(0, "Two.")], [Finish(0, "stop"), Usage(3, 2)]]
    chosen = {"input": {"words": {"action": "report"}}, **WORDS}
    question = [{"role": "user", "content": "a secret"}]
    options = {"include_usage": True}
    body = {"model": "fake", "messages": question, "stream": True, "stream_options": options, "detectors": chosen}
    events = [json.loads(line[6:]) for line in (await client.post(PATH, json=body)).text.split("\n\n")[:-2]]
    assert ["input" in event.get("detections", {}) for event in events] == [True] + [False] * (len(events) - 1)
    assert ["usage" in event for event in events] == [False] * (len(events) - 1) + [True]
    assert all(event["choices"][0]["delta"]["role"] == "assistant" for event in events[:-1])
