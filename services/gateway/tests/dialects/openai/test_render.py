import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import msgspec
import pytest
from causeway_testing.gateway.answering import FakeGenerator
from gateway.dialects.openai.render import OpenAiExchange, source_node
from gateway.domain import (
    Action,
    Batch,
    Chunk,
    Completion,
    Context,
    Delta,
    Detections,
    Detector,
    DetectorFailure,
    Detectors,
    Direction,
    Done,
    Finding,
    Finish,
    Passage,
    Retrieval,
    Start,
    Step,
    Turn,
    Usage,
)
from openai import APIError, APIStatusError, AsyncOpenAI, DefaultAsyncHttpxClient
from openai.types.chat import ChatCompletionChunk
from servicekit.errors import Internal, Unavailable, UpstreamRejected
from servicekit.principal import LOCAL

PASSAGE = Passage(
    "p1", "docs", "d1", "a.pdf", "a.pdf#page=2", "text", 0.5, metadata_json=b'{"k":1}', dense_score=0.4
)
CONTEXT = Context("q", (PASSAGE,), (), (Step("retrieve", 1.5),))
DONE = Done((Step("first token", 2.0), Step("generate", 3.5)))
START = Start(b'{"id":"chatcmpl-7","created":5,"model":"own","system_fingerprint":"fp","service_tier":null}')


def exchange(
    *, streaming: bool = True, usage: bool = False, index: str = "docs", detectors: Detectors | None = None
) -> OpenAiExchange:
    turn = Turn(
        LOCAL,
        "q",
        model="asked",
        retrieval=Retrieval((index,) if index else ()),
        detectors=detectors or Detectors(),
    )
    return OpenAiExchange(turn, streaming=streaming, include_usage=usage, has_source_nodes=bool(index))


def events(raw: bytes) -> list[Any]:
    """Check that each event of a stream is one line of data, and return the events. The end marker is a string."""
    assert raw.endswith(b"\n\n")
    lines = raw.decode().removesuffix("\n\n").split("\n\n")
    assert all(line.startswith("data: ") and "\n" not in line for line in lines)
    return [line[6:] if line == "data: [DONE]" else json.loads(line[6:]) for line in lines]


def stream(answer: OpenAiExchange, *batches: Batch) -> list[Any]:
    return events(b"".join(answer.render(batch) for batch in batches))


def whole(answer: OpenAiExchange, *batches: Batch) -> dict[str, Any]:
    for batch in batches:
        answer.add_events(batch)
    body: dict[str, Any] = json.loads(answer.complete())
    return body


def deltas(chunks: list[Any]) -> list[dict[str, Any]]:
    return [choice["delta"] for chunk in chunks[:-1] for choice in chunk["choices"]]


def test_a_stream_has_role_tokens_and_finish() -> None:
    """The role is first, each token has its chunk, and the finish is last.

    Each chunk has the model server's members.
    """
    chunks = stream(
        exchange(),
        [CONTEXT, START, Delta(0, "He"), Delta(0, "llo \u20ac")],
        [Finish(0, "stop"), Usage(1, 2)],
        [DONE],
    )
    assert chunks[-1] == "[DONE]"
    for chunk in chunks[:-1]:
        ChatCompletionChunk.model_validate(chunk, strict=True)
        assert (chunk["id"], chunk["created"], chunk["model"]) == ("chatcmpl-7", 5, "own")
        assert chunk["object"] == "chat.completion.chunk"
        assert chunk["system_fingerprint"] == "fp"
        assert "usage" not in chunk
        assert "service_tier" not in chunk
    assert deltas(chunks) == [
        {"role": "assistant", "content": ""},
        {"content": "He"},
        {"content": "llo \u20ac"},
        {},
    ]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks[:-1]] == [None, None, None, "stop"]


def test_metadata_remain_unchanged() -> None:
    """The metadata have the same numbers, do not replace the gateway's members, and have no line breaks."""
    stored = b'{"sourcefile": "mine",\n "x": 1.50, "big": 12345678901234567890123}'
    passage = Passage("p", "docs", "d", "a.pdf", "a.pdf", "text", 1.0, headings=("One",), metadata_json=stored)
    node = msgspec.json.encode(source_node(passage))
    assert stored.replace(b"\n", b" ") in node
    assert b"\n" not in node
    read = msgspec.json.decode(node)
    assert (read["sourcefile"], read["headings"]) == ("a.pdf", ["One"])


def test_the_first_chunk_has_the_sources() -> None:
    """Only the first chunk has the passages, with all their members."""
    chunks = stream(exchange(), [CONTEXT, Delta(0, "a"), Delta(0, "b"), Finish(0, "stop")], [DONE])
    assert chunks[0]["source_nodes"] == [
        {
            "doc_id": "d1",
            "node_id": "p1",
            "text": "text",
            "score": 0.5,
            "dense_score": 0.4,
            "sparse_score": None,
            "source": "both",
            "sourcefile": "a.pdf",
            "sourcepage": "a.pdf#page=2",
            "metadata": {"k": 1},
        }
    ]
    assert not any("source_nodes" in chunk for chunk in chunks[1:-1])


def test_the_last_chunk_has_the_times() -> None:
    """The chunk with the finish or, if there is one, the chunk with the usage has the times."""
    script: list[Batch] = [[CONTEXT, Delta(0, "a")], [Finish(0, "stop"), Usage(1, 2)], [DONE]]
    for usage in (False, True):
        chunks = stream(exchange(usage=usage), *script)
        assert chunks[-2]["timings"] == {"first_token_ms": 2.0, "generate_ms": 3.5}
        assert not any("timings" in chunk for chunk in chunks[:-2])


def test_usage_has_its_own_chunk() -> None:
    """The requested usage is the model server's object in a chunk without choices. Other chunks have null."""
    script: list[Batch] = [
        [Delta(0, "a"), Finish(0, "stop")],
        [Usage(1, 2, b'{"prompt_tokens":1,\n"x":1.0}')],
        [DONE],
    ]
    *others, last, _ = stream(exchange(usage=True), *script)
    assert last["choices"] == []
    assert last["usage"] == {"prompt_tokens": 1, "x": 1.0}
    assert all(chunk["usage"] is None for chunk in others)
    counted = stream(exchange(usage=True), [Delta(0, "a"), Finish(0, "stop"), Usage(1, 2)], [DONE])
    assert counted[-2]["usage"] == {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}


def test_choices_are_independent() -> None:
    """Each choice has its role, text and finish reason. A choice can finish before the others."""
    answer = exchange()
    begun = answer.render([Delta(1, "b"), Delta(0, "a"), Finish(0, "stop")])
    after = answer.render([Delta(1, "c")])
    assert b'"finish_reason":"stop"' in after
    chunks = events(begun + after + answer.render([Finish(1, "length")]) + answer.render([DONE]))
    for index, text, reason in ((0, "a", "stop"), (1, "bc", "length")):
        own = [c for chunk in chunks[:-1] for c in chunk["choices"] if c["index"] == index]
        assert own[0]["delta"] == {"role": "assistant", "content": ""}
        assert "".join(choice["delta"].get("content", "") for choice in own) == text
        assert [choice["finish_reason"] for choice in own if choice["finish_reason"]] == [reason]


def test_unknown_members_remain_unchanged() -> None:
    """Tool calls, reasoning, log probabilities and vendor fields remain unchanged, byte for byte."""
    raw = exchange().render(
        [
            Delta(0, "", b'{"tool_calls":[{"index":0,"function":{"arguments":"{\\"x\\""}}]}'),
            Delta(0, "a", b'{"reasoning":"r"}', b' { "logprobs":{"content":[{"logprob":-1.0}]}, "v":1e400 } '),
            Delta(0, "", b"", b'{"token_ids":[1,2]}'),
            Finish(0, "tool_calls", b'{"stop_reason":null}'),
            DONE,
        ]
    )
    assert b'"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\\"x\\""}}]},"finish_reason":null' in raw
    assert (
        b'"delta":{"content":"a","reasoning":"r"},"logprobs":{"content":[{"logprob":-1.0}]}, "v":1e400,"finish_'
        in raw
    )
    assert b'"delta":{},"token_ids":[1,2],"finish_reason":null' in raw
    assert b'"delta":{},"stop_reason":null,"finish_reason":"tool_calls"' in raw


def test_line_breaks_of_a_model_server_do_not_break_events() -> None:
    """JSON with several lines becomes one event."""
    chunks = stream(exchange(), [Delta(0, "a\n\nb", b'{\n"reasoning":\r\n"r"}'), Finish(0, "stop")], [DONE])
    assert chunks[1]["choices"][0]["delta"] == {"content": "a\n\nb", "reasoning": "r"}
    assert stream(exchange(index=""), [Chunk(b'{\n "a":1\r\n}')], [DONE])[0] == {"a": 1}


def test_a_later_start_adds_members() -> None:
    """A later `Start` event adds its members. The id and the other members remain unchanged."""
    chunks = stream(
        exchange(),
        [Delta(0, "a")],
        [Start(b'{"system_fingerprint":"fp"}'), Delta(0, "b"), Finish(0, "stop")],
        [DONE],
    )
    assert len({chunk["id"] for chunk in chunks[:-1]}) == 1
    assert "system_fingerprint" not in chunks[0]
    assert chunks[2]["system_fingerprint"] == "fp"
    assert chunks[2]["model"] == "asked"


def test_an_answer_in_one_piece_instead_of_a_stream() -> None:
    """The answer of a model server that does not stream becomes one chunk with the same content.

    A chunk has the indexes that such an answer may lack.
    """
    completion = {
        "id": "x",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [
            {
                "finish_reason": "tool_calls",
                "message": {
                    "role": "assistant",
                    "content": "hi",
                    "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
                },
            }
        ],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }
    chunk, done = stream(exchange(index=""), [Completion(json.dumps(completion).encode())], [DONE])
    ChatCompletionChunk.model_validate(chunk, strict=True)
    [choice] = chunk["choices"]
    assert (choice["index"], choice["delta"]["content"], choice["delta"]["tool_calls"][0]["index"]) == (0, "hi", 0)
    assert done == "[DONE]"


@pytest.mark.parametrize(
    "choices",
    [[1], "x", [{"message": "x"}], [{"message": {"tool_calls": [1]}}], [{"message": {"tool_calls": "x"}}]],
)
def test_an_invalid_answer_in_one_piece_is_a_failure_of_the_model_server(choices: Any) -> None:
    """A choice, a message or a tool call that is not an object raises `Unavailable`."""
    with pytest.raises(Unavailable, match="not JSON objects"):
        exchange().render([Completion(json.dumps({"choices": choices}).encode())])


def finding(direction: Direction, item: int, start: int = 0) -> Detections:
    return Detections(direction, item, (Finding("d", "pii", "mail", 1.0, Action.REPORT, start, start + 1, "x"),))


def test_the_next_chunk_has_the_detections() -> None:
    """The first chunk has the detections of the input. Those of the output and the warnings are with their text."""
    detectors = Detectors(input=(Detector("d", Action.REPORT),), output=(Detector("d", Action.REPORT),))
    chunks = stream(
        exchange(detectors=detectors),
        [CONTEXT, finding(Direction.INPUT, 2), START],
        [Delta(0, "a"), finding(Direction.OUTPUT, 0, 1), Delta(0, "b")],
        [Detections(Direction.OUTPUT, 0, (), (DetectorFailure("e", "no answer"),)), Finish(0, "stop")],
        [DONE],
    )
    assert [entry["message_index"] for entry in chunks[0]["detections"]["input"]] == [2]
    assert "output" not in chunks[0]["detections"]
    assert "detections" not in chunks[1]
    assert chunks[2]["choices"][0]["delta"]["content"] == "b"
    assert chunks[2]["detections"]["output"][0]["results"][0]["start"] == 1
    assert chunks[2]["warnings"][0]["type"] == "UNSUITABLE_OUTPUT"
    assert chunks[3]["warnings"] == [{"type": "DETECTOR_ERROR", "message": "e: no answer"}]
    for chunk in chunks[:-1]:
        assert len(chunk["choices"]) == 1


@pytest.mark.parametrize("usage", [False, True])
def test_a_requested_direction_is_always_present(usage: bool) -> None:
    """Without findings, the first chunk has an empty list for the input, and the last for the output."""
    detectors = Detectors(input=(Detector("d", Action.REPORT),), output=(Detector("d", Action.REPORT),))
    script: list[Batch] = [[CONTEXT, Delta(0, "a"), Finish(0, "stop"), Usage(1, 2)], [DONE]]
    chunks = stream(exchange(detectors=detectors, usage=usage), *script)
    assert chunks[0]["detections"] == {"input": []}
    assert chunks[-2]["detections"] == {"output": []}
    body = whole(exchange(detectors=detectors, streaming=False), *script)
    assert body["detections"] == {"input": [], "output": []}


def test_a_stream_without_a_finish_is_completed() -> None:
    """Without a finish from the model, the stream still ends with the times and the end marker."""
    chunks = stream(exchange(), [Delta(0, "a")], [DONE])
    assert chunks[-2]["timings"]
    assert chunks[-1] == "[DONE]"


@pytest.mark.parametrize(
    "error",
    [Unavailable("gone"), Internal(), UpstreamRejected("no", status=500, body='{"error":{\n"message":"m"}}')],
)
def test_a_failure_is_an_event_without_the_end(error: Any) -> None:
    """A failure is one event with `error`. The end marker is omitted, because it means a complete answer."""
    [failure] = events(exchange().render_failure(error))
    assert failure["error"]["message"]


def test_an_answer_in_one_piece() -> None:
    """The answer is OpenAI's object with the model server's members, all choices in order, usage and sources."""
    body = whole(
        exchange(streaming=False),
        [CONTEXT, START, Delta(1, "b"), Delta(0, "a")],
        [
            Delta(0, "A", b'{"reasoning":"r"}', b'{"logprobs":{"content":[1]}}'),
            Finish(0, "stop"),
            Finish(1, "length"),
        ],
        [Usage(1, 2), DONE],
    )
    assert (body["id"], body["object"], body["model"]) == ("chatcmpl-7", "chat.completion", "own")
    assert body["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "aA", "reasoning": "r"},
            "logprobs": {"content": [1]},
            "finish_reason": "stop",
        },
        {"index": 1, "message": {"role": "assistant", "content": "b"}, "finish_reason": "length"},
    ]
    assert body["usage"]["total_tokens"] == 3
    assert body["source_nodes"][0]["node_id"] == "p1"


def test_tool_calls_of_an_answer_in_one_piece() -> None:
    """The pieces of a tool call are joined, their index is removed, and the content is null."""
    body = whole(
        exchange(streaming=False, index=""),
        [CONTEXT, Delta(0, "", b'{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{"}}]}')],
        [Delta(0, "", b'{"tool_calls":[{"index":0,"function":{"arguments":"}"}}]}'), Finish(0, "tool_calls"), DONE],
    )
    message = body["choices"][0]["message"]
    assert message["content"] is None
    assert message["tool_calls"] == [{"id": "a", "function": {"name": "f", "arguments": "{}"}}]
    assert "source_nodes" not in body


def test_an_empty_answer_has_an_empty_content() -> None:
    """The content is null only if the answer calls tools."""
    body = whole(exchange(streaming=False), [CONTEXT, Finish(0, "stop"), DONE])
    assert body["choices"][0]["message"]["content"] == ""


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (b' {"a" : 1.50, "b":{"}":1e400} }\n', b' {"a" : 1.50, "b":{"}":1e400} ,"source_nodes":null}\n'),
        (b"{}", b'{"source_nodes":null}'),
        (b'{"source_nodes":[{"text":"its own"}]}', b'{"source_nodes":[{"text":"its own"}]}'),
        (b'{"a":"source_nodes"}', b'{"a":"source_nodes","source_nodes":null}'),
        (b"[1]", b"[1]"),
    ],
)
def test_a_pass_through_with_an_index_has_null_sources(sent: bytes, expected: bytes) -> None:
    """The gateway adds null to a complete answer or to the first chunk, and does not change the other bytes."""
    answer = exchange(streaming=False)
    answer.add_events([Completion(sent), DONE])
    assert answer.complete() == expected
    streamed = exchange().render([Chunk(sent), Chunk(sent)])
    assert streamed == b"data: %b\n\ndata: %b\n\n" % tuple(
        b" ".join(body.splitlines()) for body in (expected, sent)
    )


def test_an_answer_without_a_search_has_no_sources() -> None:
    """`source_nodes` is null if the request named an index, and is absent otherwise."""
    turn = Turn(LOCAL, "q")
    for names_index in (True, False):
        answer = OpenAiExchange(turn, streaming=False, has_source_nodes=names_index)
        body = whole(answer, [CONTEXT, Delta(0, "a"), Finish(0, "stop"), DONE])
        assert body.get("source_nodes", "none") == (None if names_index else "none")
        first, *others = stream(
            OpenAiExchange(turn, streaming=True, has_source_nodes=names_index),
            [CONTEXT, Delta(0, "a"), Finish(0, "stop")],
            [DONE],
        )
        assert first.get("source_nodes", "none") == (None if names_index else "none")
        assert not any("source_nodes" in chunk for chunk in others[:-1])


# --- with OpenAI's client ---------------------------------------------------------------------------------------


@pytest.fixture
async def openai(port: int) -> AsyncIterator[AsyncOpenAI]:
    """Return OpenAI's client, connected to a running server."""
    async with AsyncOpenAI(
        base_url=f"http://127.0.0.1:{port}/v1",
        api_key="none",
        max_retries=0,
        http_client=DefaultAsyncHttpxClient(trust_env=False),
    ) as client:
        yield client


ASKED: Any = [{"role": "user", "content": "When does the ferry leave?"}]
INDEX = {"index_name": "docs"}


async def test_openais_client_reads_an_answer(openai: AsyncOpenAI) -> None:
    """OpenAI's client reads an answer and its sources."""
    answer = await openai.chat.completions.create(model="m", messages=ASKED, extra_body=INDEX)
    assert answer.choices[0].message.content == "At nine."
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.total_tokens == 10
    assert answer.model == "fake"
    assert answer.model_extra is not None
    assert len(answer.model_extra["source_nodes"]) == 2


async def test_openais_client_reads_a_stream(openai: AsyncOpenAI) -> None:
    """OpenAI's client reads the text, the sources of the first chunk, and usage and times of the last."""
    chunks = [
        chunk
        async for chunk in await openai.chat.completions.create(
            model="m", messages=ASKED, extra_body=INDEX, stream=True, stream_options={"include_usage": True}
        )
    ]
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "At nine."
    assert len((chunks[0].model_extra or {})["source_nodes"]) == 2
    assert chunks[-1].usage is not None
    assert "generate_ms" in (chunks[-1].model_extra or {})["timings"]


async def test_openais_client_joins_tool_calls(fakes: Any, openai: AsyncOpenAI) -> None:
    """OpenAI's client builds the complete tool call from the streamed pieces."""
    pieces = [
        b'{"tool_calls":[{"index":0,"id":"c","type":"function","function":{"name":"f","arguments":""}}]}',
        b'{"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]}',
    ]
    fakes.generator.script = [*([Delta(0, "", piece)] for piece in pieces), [Finish(0, "tool_calls")]]
    async with openai.chat.completions.stream(
        model="m", messages=ASKED, extra_body={"detectors": {"output": {"words": {}}}}
    ) as stream:
        answer = await stream.get_final_completion()
    calls = answer.choices[0].message.tool_calls
    assert calls is not None
    assert (calls[0].id, calls[0].function.name, calls[0].function.arguments) == ("c", "f", "{}")
    assert answer.choices[0].finish_reason == "tool_calls"


async def test_openais_client_raises_a_failure_in_mid_stream(fakes: Any, openai: AsyncOpenAI) -> None:
    """OpenAI's client raises the error after it has read the earlier chunks."""
    fakes.generator.script = [[Delta(0, "At ")], Unavailable("The model is away.")]
    stream = await openai.chat.completions.create(model="m", messages=ASKED, extra_body=INDEX, stream=True)
    texts: list[str | None] = []

    async def read() -> None:
        nonlocal texts
        async for chunk in stream:
            texts += [chunk.choices[0].delta.content]

    with pytest.raises(APIError, match=r"The model is away\."):
        await read()
    assert texts == ["", "At "]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_model_servers_refusal_reaches_the_client(fakes: Any, openai: AsyncOpenAI, stream: bool) -> None:
    """The client gets the status, the body and Retry-After of the model server."""
    body = '{"error":{"message":"slow down","code":"busy"}}'
    fakes.generator.script = [UpstreamRejected("no", status=429, body=body, retry_after=7)]
    with pytest.raises(APIStatusError) as caught:
        await openai.chat.completions.create(model="m", messages=ASKED, stream=stream)
    assert caught.value.status_code == 429
    assert caught.value.response.json() == json.loads(body)
    assert caught.value.response.headers["retry-after"] == "7"


async def test_a_pass_through_over_http_remains_unchanged(fakes: Any, http: httpx.AsyncClient) -> None:
    """The model gets the request's bytes, and the client the answer's bytes and a server timing."""
    fakes.generator.script = [[Completion(b' {"x" : 1.50}\n')]]
    body = b'{"model" : "m", "messages":"any text"}'
    response = await http.post("/v1/chat/completions", content=body, headers={"content-type": "application/json"})
    assert fakes.generator.prompts[0].passthrough_json == body
    assert response.content == b' {"x" : 1.50}\n'
    assert "generate;dur=" in response.headers["server-timing"]


async def test_a_streamed_pass_through_over_http(http: httpx.AsyncClient, fakes: Any) -> None:
    """The client gets the model server's chunks byte for byte and without times, and the end marker once."""
    fakes.generator.script = [[Chunk(b'{"x":1.50}')], [Chunk(b'{"error_like":{}}')]]
    response = await http.post("/v1/chat/completions", json={"stream": True})
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert response.content == b'data: {"x":1.50}\n\ndata: {"error_like":{}}\n\ndata: [DONE]\n\n'


async def test_a_blocked_stream_is_completed(fakes: Any, http: httpx.AsyncClient) -> None:
    """The stream has the fallback text, `content_filter`, usage and the end marker, and no part of the secret."""
    fakes.generator.script = FakeGenerator.saying("the sec", "ret", " is out").script
    body = {
        "messages": ASKED,
        "stream": True,
        "stream_options": {"include_usage": True},
        "detectors": {"output": {"words": {"action": "block"}}},
    }
    response = await http.post("/v1/chat/completions", json=body)
    chunks = events(response.content)
    text = "".join(c["choices"][0]["delta"].get("content", "") for c in chunks[:-1] if c["choices"])
    assert text == "the The answer was withheld because it contains something that may not be shown."
    assert chunks[-3]["choices"][0]["finish_reason"] == "content_filter"
    assert chunks[-2]["usage"]["total_tokens"] > 0
    assert chunks[-1] == "[DONE]"


def test_a_judged_answer_in_one_piece_has_detections() -> None:
    """The model server's members remain. The gateway adds passages and warnings, and replaces `detections`."""
    detectors = Detectors(output=(Detector("words", Action.REPORT),))
    answer = exchange(streaming=False, detectors=detectors)
    sent = b'{"choices": [{"message": {"content": "ok", "refusal": null}}], "detections": 5}'
    answer.add_events(
        [CONTEXT, Detections(Direction.OUTPUT, 0, (), (), ("choices[0].message.audio",)), Completion(sent)]
    )
    answer.add_events([DONE])
    body = json.loads(answer.complete())
    assert body["choices"] == [{"message": {"content": "ok", "refusal": None}}]
    assert body["detections"] == {"output": []}
    assert body["warnings"] == [
        {
            "type": "UNJUDGED_OUTPUT",
            "message": "choices[0].message.audio was omitted: no detector can judge it.",
        }
    ]
    assert [node["doc_id"] for node in body["source_nodes"]] == ["d1"]
