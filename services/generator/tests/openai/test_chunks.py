"""Chunks of a model server, which are read into events or relayed."""

import json
from typing import Any

import pytest
from causeway_testing.model_answers import chunk
from generator.domain import Event, EventKind
from generator.openai.chunks import ChunkReader, ChunkRelay, checked_answer
from hypothesis import given
from hypothesis import strategies as st
from servicekit.errors import Unavailable, UpstreamRejected


def encoded(document: object) -> bytes:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


def read(*chunks: dict[str, Any]) -> list[Event]:
    reader = ChunkReader()
    return [event for chunk in chunks for event in reader.read(encoded(chunk))]


def raw(event: Event) -> Any:
    return json.loads(event.raw_json)


def test_start_has_the_members_of_the_answer() -> None:
    """START has all members of the first chunk except its choices."""
    start, *rest = read(chunk({"role": "assistant", "content": ""}, system_fingerprint="fp", provider={"x": [1]}))
    assert start.kind is EventKind.START
    assert raw(start) == {
        "id": "chatcmpl-stub",
        "object": "chat.completion.chunk",
        "created": 1_700_000_000,
        "model": "stub",
        "system_fingerprint": "fp",
        "provider": {"x": [1]},
    }
    assert rest == []


def test_content_becomes_text() -> None:
    """Each content becomes a TEXT event with its choice and exactly its text."""
    texts = ["Hel", "lo ", "wörld 🌍", '\n\t"quoted" \\']
    events = read(chunk({"content": ""}), *(chunk({"content": text}, index=2) for text in texts))
    assert events[1:] == [Event(EventKind.TEXT, 2, text) for text in texts]


def test_other_members_of_a_delta_become_a_delta_event() -> None:
    """Other members of a delta become a DELTA event with their JSON, before the text of the chunk."""
    calls = [{"index": 0, "id": "call_1", "function": {"name": "f", "arguments": '{"a": 1}'}}]
    for delta in (
        {"tool_calls": calls},
        {"reasoning_content": "hm"},
        {"refusal": "no"},
        {"x_vendor": 1.50},
        {"content": [{"type": "thinking", "thinking": "…"}]},
    ):
        _, event = read(chunk({"role": "assistant", **delta}))
        assert (event.kind, raw(event)) == (EventKind.DELTA, delta)
    _, before, text = read(chunk({"content": "So", "reasoning": "hm"}))
    assert (before.kind, raw(before), text.text) == (EventKind.DELTA, {"reasoning": "hm"}, "So")


def test_other_values_stay_byte_for_byte() -> None:
    """Numbers, escapes and spaces of a value that the platform does not read stay byte for byte."""
    reader = ChunkReader()
    _, event = reader.read(b'{"id":"a","choices":[{"index":0,"delta":{"v": {"n": 1.0e+2 , "s":"\\u00e9"}}}]}')
    assert event.raw_json == b'{"v":{"n": 1.0e+2 , "s":"\\u00e9"}}'


def test_other_members_of_a_choice_are_on_its_text_or_finish_event() -> None:
    """Other members of a choice, such as logprobs, are on its TEXT event or else on its FINISH event."""
    logprobs = {"content": [{"token": "a", "logprob": -0.5}]}
    one, two, three = (chunk({"content": "a"}), chunk({}), chunk({}, "stop"))
    one["choices"][0]["logprobs"] = logprobs
    two["choices"][0]["content_filter_results"] = {"hate": {"filtered": False}}
    three["choices"][0]["stop_reason"] = 128
    _, text, empty, finish = read(one, two, three)
    assert (text.text, raw(text)) == ("a", {"logprobs": logprobs})
    assert (empty.kind, empty.text, raw(empty)) == (
        EventKind.TEXT,
        "",
        {"content_filter_results": {"hate": {"filtered": False}}},
    )
    assert (finish.kind, finish.text, raw(finish)) == (EventKind.FINISH, "stop", {"stop_reason": 128})


def test_text_and_finish_in_one_chunk_are_two_events() -> None:
    """A chunk with a text and a finish reason becomes two events."""
    assert [(event.kind, event.text) for event in read(chunk({"content": "end"}, "length"))[1:]] == [
        (EventKind.TEXT, "end"),
        (EventKind.FINISH, "length"),
    ]


def test_usage_is_counted_by_the_server() -> None:
    """USAGE has the server's numbers, as exact, and the server's object. Invalid numbers become 0."""
    usage = {
        "prompt_tokens": 3,
        "completion_tokens": 5,
        "total_tokens": 8,
        "prompt_tokens_details": {"cached_tokens": 1},
    }
    event = read(chunk({"content": "a"}), {"choices": [], "usage": usage})[-1]
    assert event.usage is not None
    assert (event.usage.prompt_tokens, event.usage.completion_tokens, event.usage.exact) == (3, 5, True)
    assert raw(event) == usage
    odd = read({"choices": [], "usage": {"prompt_tokens": None, "completion_tokens": -4}})[-1]
    assert odd.usage is not None
    assert (odd.usage.prompt_tokens, odd.usage.completion_tokens) == (0, 0)


def test_later_members_of_the_answer_cause_another_start() -> None:
    """Later members of the answer cause another START with only these. A new time or padding does not."""
    first = {"id": "", "created": 0, "model": "", "choices": [], "prompt_filter_results": [1]}
    events = read(
        first,
        chunk({"content": "a"}, obfuscation="xx"),
        {**chunk({"content": "b"}), "created": 1_700_000_009, "obfuscation": "y"},
        chunk({"content": "c"}, citations=["https://example.org"]),
    )
    kinds = [event.kind for event in events]
    assert kinds == [
        EventKind.START,
        EventKind.START,
        EventKind.TEXT,
        EventKind.TEXT,
        EventKind.START,
        EventKind.TEXT,
    ]
    assert raw(events[0]) == {"id": "", "created": 0, "model": "", "prompt_filter_results": [1]}
    assert raw(events[1]) == {
        "id": "chatcmpl-stub",
        "object": "chat.completion.chunk",
        "created": 1_700_000_000,
        "model": "stub",
    }
    assert raw(events[4]) == {"citations": ["https://example.org"]}


deltas = st.fixed_dictionaries(
    {},
    optional={
        "content": st.none() | st.text(max_size=5),
        "role": st.just("assistant"),
        "refusal": st.none(),
        "tool_calls": st.none() | st.just([{"index": 0}]),
        "reasoning_content": st.none() | st.text(max_size=3),
    },
)


@given(st.lists(st.tuples(deltas, st.none() | st.just("stop"), st.integers(0, 2)), min_size=1, max_size=5))
def test_the_fast_decoder_equals_the_general_one(
    chunks: list[tuple[dict[str, Any], str | None, int]],
) -> None:
    """The fast decoder of plain chunks gives the same events as the general one."""
    plain = [chunk(delta, reason, index=index) for delta, reason, index in chunks]
    general = [{**document, "x_nothing": None} for document in plain]  # an unknown member prevents the fast decoder
    assert read(*plain) == read(*general)


def test_a_completion_in_one_piece_is_read_like_a_stream() -> None:
    """A completion that is not streamed becomes the same events as a stream."""
    message = {"role": "assistant", "content": "whole"}
    events = read({"id": "x", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": {}})
    assert [event.kind for event in events] == [EventKind.START, EventKind.TEXT, EventKind.FINISH, EventKind.USAGE]
    assert events[1].text == "whole"


@pytest.mark.parametrize("make", [ChunkReader, ChunkRelay])
def test_an_answer_is_complete_when_every_choice_has_ended(make: type[ChunkReader | ChunkRelay]) -> None:
    """An answer is complete when each of its choices has a finish reason."""
    reader = make()
    assert not reader.complete
    reader.read(encoded(chunk({"content": "a"}, index=0)))
    reader.read(encoded(chunk({"content": "a"}, "stop", index=1)))
    assert not reader.complete
    reader.read(encoded(chunk({}, "stop", index=0)))
    assert reader.complete


INVALID_PAYLOADS = [
    b'{"choices":[{"delta":{"content":"\xff"}}]}',
    b'{"choices":[{"delta":{"content":"a"},"finish_reason":"\xc3"}]}',
    b'{"choices":[{"delta":{"reasoning":"\xff"}}]}',
    b'{"choices":[],"\xff":1}',
    b'{"choices":[],"vendor":"\xff"}',
    b'{"error":{"message":"\xff"}}',
    b'{"choices":' + b"[" * 50_000,
]
"""Payloads with invalid UTF-8 in different places, and one that is nested too deeply."""


@pytest.mark.parametrize(
    "payload",
    [
        b'{"choices":[}',
        b"nope",
        b"[]",
        b'{"choices":{}}',
        b'{"choices":[{"index":-1}]}',
        b'{"choices":[{"delta":[]}]}',
        b'{"choices":[{"delta":{"content":"a"},"logprobs":"high"}]}',
        b'{"choices":[{"delta":{"content":"a"},"logprobs":{"content":["a"]}}]}',
        b'{"choices":[{"delta":{"content":"a"},"logprobs":{"content":[{"top_logprobs":["a"]}]}}]}',
        *INVALID_PAYLOADS,
    ],
)
def test_an_invalid_chunk_is_unavailable(payload: bytes) -> None:
    """A payload that is not a chunk raises Unavailable, before and after the first event."""
    for before in ([], [encoded(chunk({"content": "a"}))]):
        reader = ChunkReader()
        for each in before:
            reader.read(each)
        with pytest.raises(Unavailable, match="model server sent"):
            reader.read(payload)


@pytest.mark.parametrize(
    "members",
    [
        {"choices": {"message": {}}},
        {"choices": ["a"]},
        {"choices": [{"message": "a"}]},
        {"choices": [{"message": {"tool_calls": ["a"]}}]},
        {"choices": [{"finish_reason": ["stop"]}]},
        {"choices": [{"logprobs": {"content": ["a"]}}]},
        {"choices": [], "usage": [1]},
        {"choices": [], "usage": {"prompt_tokens": "many"}},
        {"choices": [], "usage": {"completion_tokens": {}}},
    ],
    ids=str,
)
def test_a_completion_with_a_member_of_a_wrong_type_is_refused(members: dict[str, Any]) -> None:
    """An answer in one piece raises Unavailable if a member that the platform reads has a wrong type."""
    with pytest.raises(Unavailable, match=r"The model server sent an answer that cannot be read\."):
        checked_answer(encoded(members))


def test_a_completion_may_have_other_members_and_null() -> None:
    """Vendors add members of any type, and a member that the platform reads may be null."""
    top = {"token": "a", "logprob": -0.5}
    scored = {"logprobs": {"content": [top | {"top_logprobs": [top]}], "vendor": 1}, "vendor": [1]}
    legacy = {"text": "a", "logprobs": {"tokens": ["a"], "token_logprobs": [-0.5], "top_logprobs": [{"a": -0.5}]}}
    unset = {"message": None, "finish_reason": None, "logprobs": None}
    for choices in (None, [scored, legacy, unset]):
        answer = encoded({"choices": choices, "usage": None, "vendor": "x"})
        assert checked_answer(answer) == answer


@pytest.mark.parametrize(
    ("error", "status"),
    [({"message": "m", "code": 429}, 429), ({"message": "m", "code": "context_length"}, 502), ("text", 502)],
)
def test_an_error_in_the_stream_is_the_servers_refusal(error: object, status: int) -> None:
    """An error in the stream raises UpstreamRejected with its JSON and its status, or 502."""
    with pytest.raises(UpstreamRejected) as caught:
        ChunkReader().read(encoded({"error": error}))
    assert caught.value.status == status
    assert json.loads(caught.value.body) == {"error": error}


@given(st.binary(max_size=5).map(lambda data: json.dumps({"x": data.hex(), "choices": [{"delta": {}}]}).encode()))
def test_the_relay_passes_payloads_untouched(payload: bytes) -> None:
    """A CHUNK event has the payload byte for byte."""
    assert ChunkRelay().read(payload) == [Event(EventKind.CHUNK, raw_json=payload)]


@pytest.mark.parametrize("payload", [b"[1, 2]", b'{"choices": {"odd": 1}}', b'{"error":{"code":429}}', b'"x"'])
def test_the_relay_passes_json_of_any_shape(payload: bytes) -> None:
    """The relay passes any JSON on, even a later error. An error as the first payload is a refusal."""
    relay = ChunkRelay()
    relay.read(b"{}")
    assert relay.read(payload) == [Event(EventKind.CHUNK, raw_json=payload)]
    if b"error" in payload:
        with pytest.raises(UpstreamRejected) as caught:
            ChunkRelay().read(payload)
        assert caught.value.status == 429


@pytest.mark.parametrize("payload", [b'{"choices":[}', b"nope", b"", b'[1, {"a"]', *INVALID_PAYLOADS])
def test_the_relay_passes_no_broken_json(payload: bytes) -> None:
    """The relay refuses invalid JSON."""
    relay = ChunkRelay()
    relay.read(b"{}")
    with pytest.raises(Unavailable):
        relay.read(payload)


def test_the_text_of_a_text_completion_becomes_a_text_event() -> None:
    """The text of a text completion's choice becomes a TEXT event with the choice's other members."""
    events = read(
        {
            "id": "c",
            "choices": [{"index": 0, "text": "Once", "logprobs": {"tokens": ["Once"]}, "finish_reason": None}],
        },
        {"id": "c", "choices": [{"index": 1, "text": " upon", "finish_reason": "length"}]},
    )[1:]
    assert [(event.kind.name, event.choice, event.text) for event in events] == [
        ("TEXT", 0, "Once"),
        ("TEXT", 1, " upon"),
        ("FINISH", 1, "length"),
    ]
    assert raw(events[0]) == {"logprobs": {"tokens": ["Once"]}}
