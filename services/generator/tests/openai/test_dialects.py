"""The documented dialects of OpenAI-compatible servers: answers are read or relayed, and refusals kept."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from causeway_testing.model_answers import DONE, STREAM, Answer, sse
from causeway_testing.model_server import ModelServer as Stub
from generator.domain import ChatMessage, Conversation, Event, EventKind, OpenAIRequest
from generator.openai.model import OpenAIModel
from servicekit.errors import UpstreamRejected

MakeModel = Callable[..., OpenAIModel]
PROMPT = Conversation((ChatMessage("user", "Hi"),))


def chunk(head: dict[str, Any], delta: dict[str, Any] | None, finish: str | None = None, **members: Any) -> Any:
    choice = {"index": 0, **({} if delta is None else {"delta": delta}), "finish_reason": finish, **members}
    return {**head, "choices": [choice]}


class Dialect(NamedTuple):
    """A streamed answer, and the parts of it that must arrive."""

    chunks: list[dict[str, Any]]
    start: dict[str, Any]  # members of the answer as a whole
    deltas: list[dict[str, Any]]  # members that are not text
    choice_members: list[dict[str, Any]]  # members of a choice besides its text or finish reason
    finish: str = "stop"
    text: str = "Hello"


USAGE = {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}
CALL = [{"index": 0, "id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}]
LOGPROBS = {"content": [{"token": "Hello", "logprob": -0.1, "bytes": [72], "top_logprobs": []}], "refusal": None}

OPENAI = {
    "id": "chatcmpl-B9",
    "object": "chat.completion.chunk",
    "created": 1741569952,
    "model": "gpt-4o-2024-08-06",
    "service_tier": "default",
    "system_fingerprint": "fp_44709d6fcb",
}
VLLM = {"id": "chatcmpl-7f", "object": "chat.completion.chunk", "created": 1741569952, "model": "Qwen/Qwen3-8B"}
TGI = {
    "object": "chat.completion.chunk",
    "id": "",
    "created": 1706270835,
    "model": "tgi",
    "system_fingerprint": "2.4.0",
}
OLLAMA = {
    "id": "chatcmpl-500",
    "object": "chat.completion.chunk",
    "created": 1741569952,
    "model": "qwen3:8b",
    "system_fingerprint": "fp_ollama",
}
SAFE = {"hate": {"filtered": False, "severity": "safe"}, "violence": {"filtered": False, "severity": "safe"}}
FILTERS = [{"prompt_index": 0, "content_filter_results": {"jailbreak": {"filtered": False, "detected": False}}}]

DIALECTS = {
    "openai": Dialect(
        [
            {
                **chunk(OPENAI, {"role": "assistant", "content": "", "refusal": None}, logprobs=None),
                "usage": None,
                "obfuscation": "x",
            },
            {**chunk(OPENAI, {"content": "Hello"}, logprobs=LOGPROBS), "usage": None, "obfuscation": "abc"},
            {**chunk(OPENAI, {"tool_calls": CALL}), "usage": None},
            {**chunk(OPENAI, {}, "tool_calls", logprobs=None), "usage": None},
            {**OPENAI, "choices": [], "usage": {**USAGE, "completion_tokens_details": {"reasoning_tokens": 0}}},
        ],
        OPENAI,
        [{"tool_calls": CALL}],
        [{"logprobs": LOGPROBS}],
        "tool_calls",
    ),
    "vllm": Dialect(
        [
            {**chunk(VLLM, {"role": "assistant", "content": ""}, logprobs=None), "prompt_token_ids": None},
            chunk(VLLM, {"reasoning_content": "Hm"}, logprobs=None, token_ids=None),
            chunk(VLLM, {"content": "Hello"}, logprobs=None, token_ids=None),
            chunk(VLLM, {"content": ""}, "stop", logprobs=None, stop_reason=151645, token_ids=None),
            {**VLLM, "choices": [], "usage": USAGE},
        ],
        VLLM,
        [{"reasoning_content": "Hm"}],
        [{"stop_reason": 151645}],
    ),
    "tgi": Dialect(
        [
            {**chunk(TGI, {"role": "assistant", "content": "Hello"}, logprobs=None), "usage": None},
            {**chunk(TGI, {"role": "assistant", "content": ""}, "length", logprobs=None), "usage": None},
            {**TGI, "choices": [], "usage": USAGE},
        ],
        TGI,
        [],
        [],
        "length",
    ),
    "ollama": Dialect(
        [
            chunk(OLLAMA, {"role": "assistant", "content": "", "reasoning": "Hm"}),
            chunk(OLLAMA, {"role": "assistant", "content": "Hello"}),
            chunk(OLLAMA, {"role": "assistant", "content": ""}, "stop"),
            {**OLLAMA, "choices": [], "usage": USAGE},
        ],
        OLLAMA,
        [{"reasoning": "Hm"}],
        [],
    ),
    "azure": Dialect(
        [
            {"choices": [], "created": 0, "id": "", "model": "", "object": "", "prompt_filter_results": FILTERS},
            chunk(
                OPENAI,
                {"content": "", "refusal": None, "role": "assistant"},
                logprobs=None,
                content_filter_results={},
            ),
            chunk(OPENAI, {"content": "Hello"}, logprobs=None, content_filter_results=SAFE),
            chunk(OPENAI, {}, "stop", logprobs=None, content_filter_results={}),
            # The asynchronous filter reports after the text, without a delta.
            chunk(
                {"id": "", "object": "", "created": 0, "model": ""},
                None,
                content_filter_results=SAFE,
                content_filter_offsets={"check_offset": 0, "start_offset": 0, "end_offset": 5},
            ),
            {**OPENAI, "choices": [], "usage": USAGE},
        ],
        {**OPENAI, "prompt_filter_results": FILTERS},
        [],
        [
            {"content_filter_results": SAFE},
            {"content_filter_offsets": {"check_offset": 0, "start_offset": 0, "end_offset": 5}},
        ],
    ),
}


async def events_of(model: OpenAIModel, prompt: Conversation | OpenAIRequest) -> list[Event]:
    return [event async for event in model.generate(prompt)]


@pytest.mark.parametrize("name", DIALECTS)
async def test_a_streamed_conversation_keeps_all_members(stub: Stub, openai_model: MakeModel, name: str) -> None:
    """Text, finish reason and usage are read, and all other members arrive with their choice."""
    dialect = DIALECTS[name]
    stub.script(Answer((*map(sse, dialect.chunks), DONE), content_type=STREAM))
    events = await events_of(openai_model(), PROMPT)
    start: dict[str, Any] = {}
    for event in events:
        if event.kind is EventKind.START:
            start.update(json.loads(event.raw_json))
    assert {key: value for key, value in start.items() if value not in ("", 0)} == {
        key: value for key, value in dialect.start.items() if value not in ("", 0)
    }
    assert "".join(event.text for event in events if event.kind is EventKind.TEXT) == dialect.text
    deltas = [json.loads(event.raw_json) for event in events if event.kind is EventKind.DELTA]
    assert deltas == dialect.deltas
    ends = [event.text for event in events if event.kind is EventKind.FINISH]
    assert ends == [dialect.finish]
    members_of_choices = [
        json.loads(event.raw_json)
        for event in events
        if event.kind in (EventKind.TEXT, EventKind.FINISH) and event.raw_json
    ]
    for members in dialect.choice_members:
        assert any(members.items() <= other.items() for other in members_of_choices), (members, members_of_choices)
    (usage,) = [event for event in events if event.kind is EventKind.USAGE]
    assert usage.usage is not None
    assert (usage.usage.prompt_tokens, usage.usage.completion_tokens, usage.usage.exact) == (9, 2, True)


@pytest.mark.parametrize("name", DIALECTS)
async def test_a_streamed_request_is_relayed_untouched(stub: Stub, openai_model: MakeModel, name: str) -> None:
    """A streamed request gets the server's chunks byte for byte."""
    payloads = [json.dumps(chunk, separators=(",", ":")).encode() for chunk in DIALECTS[name].chunks]
    stub.script(Answer((*map(sse, payloads), DONE), content_type=STREAM))
    events = await events_of(openai_model(), OpenAIRequest(b'{"stream":true}'))
    assert [event.raw_json for event in events] == payloads


async def test_messages_and_parameters_reach_the_server_unchanged(stub: Stub, openai_model: MakeModel) -> None:
    """The server gets the client's messages and parameters unchanged, for a conversation and for a request."""
    parts = (
        b'[{"type":"text","text":"What is this?"},'
        b'{"type":"image_url","image_url":{"url":"data:image/png;base64,AA"}}]'
    )
    parameters = (
        b'{"tools":[{"type":"function","function":{"name":"f"}}],"logprobs":true,"top_logprobs":3,"top_k":5,'
        b'"guided_json":{"type":"object"},"reasoning_effort":"low","temperature":0.10}'
    )
    conversation = Conversation((ChatMessage("user", content_json=parts),), parameters_json=parameters)
    await events_of(openai_model("llm"), conversation)
    body = stub.requests[0].body
    assert parts in body
    for member in parameters[1:-1].split(b',"'):
        assert member.strip(b'"') in body
    document = stub.requests[0].json()
    document.pop("stream_options")
    request = json.dumps({**document, "model": "public", "stream": False}).encode()
    await events_of(openai_model("llm"), OpenAIRequest(request))
    assert stub.requests[1].body == request.replace(b'"public"', b'"llm"')


REFUSALS = {
    "openai": (
        429,
        {
            "error": {
                "message": "Rate limit reached",
                "type": "tokens",
                "param": None,
                "code": "rate_limit_exceeded",
            }
        },
        {"retry-after": "20", "x-ratelimit-remaining-tokens": "0"},
        20,
    ),
    "azure": (
        400,
        {
            "error": {
                "message": "The response was filtered",
                "type": None,
                "param": "prompt",
                "code": "content_filter",
                "status": 400,
                "innererror": {"code": "ResponsibleAIPolicyViolation", "content_filter_result": SAFE},
            }
        },
        {"apim-request-id": "x"},
        None,
    ),
    "vllm": (
        400,
        {
            "error": {
                "message": "maximum context length is 4096 tokens",
                "type": "BadRequestError",
                "param": None,
                "code": 400,
            }
        },
        {},
        None,
    ),
    "tgi": (429, {"error": "Model is overloaded", "error_type": "overloaded"}, {}, None),
    "ollama": (
        404,
        {"error": {"message": 'model "x" not found, try pulling it first', "type": "api_error"}},
        {},
        None,
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
async def test_a_refusal_keeps_status_body_and_retry_time(stub: Stub, openai_model: MakeModel, name: str) -> None:
    """A refusal keeps the server's status, body and retry time."""
    status, document, headers, retry_after = REFUSALS[name]
    stub.script(Answer((json.dumps(document).encode(),), status=status, headers=headers))
    with pytest.raises(UpstreamRejected) as caught:
        await events_of(openai_model(), PROMPT)
    assert (caught.value.status, caught.value.retry_after) == (status, retry_after)
    assert json.loads(caught.value.body) == document


@pytest.mark.parametrize(
    ("error", "status"),
    [
        ({"error": {"message": "too long", "type": "BadRequestError", "code": 400}}, 400),  # vLLM
        (
            {"object": "error", "message": "too long", "type": "BadRequestError", "code": 400},
            400,
        ),  # vLLM before 0.11
        ({"error": {"message": "incomplete generation", "http_status_code": 424}}, 424),  # TGI
        ({"error": {"message": "The server had an error", "type": "server_error", "code": None}}, 502),  # OpenAI
    ],
)
async def test_an_error_in_a_stream_is_raised(
    stub: Stub, openai_model: MakeModel, error: dict[str, Any], status: int
) -> None:
    """An error in a stream raises UpstreamRejected, even if the stream then ends normally."""
    for prompt in (PROMPT, OpenAIRequest(b'{"stream":true}')):
        stub.script(Answer((sse(error), DONE), content_type=STREAM))
        with pytest.raises(UpstreamRejected) as caught:
            await events_of(openai_model(), prompt)
        assert caught.value.status == status
        assert json.loads(caught.value.body) == error
