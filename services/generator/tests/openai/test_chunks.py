"""Chunks of a model server, read into events or passed on."""

import json
from typing import Any

import pytest
from causeway_testing.model_answers import chunk
from generator.domain import Event, EventKind
from generator.openai.chunks import ChunkReader, ChunkRelay
from hypothesis import given
from hypothesis import strategies as st
from servicekit.errors import Unavailable, UpstreamRejected


def encoded(document: object) -> bytes:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


def read(*chunks: dict[str, Any]) -> list[Event]:
    reader = ChunkReader()
    return [event for each in chunks for event in reader.read(encoded(each))]


def raw(event: Event) -> Any:
    return json.loads(event.raw_json)


def test_the_first_chunk_starts_the_answer_with_what_is_outside_of_its_choices() -> None:
    """START holds the server's own id, time, model and whatever else it says about the answer as a whole."""
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
    """Each content is a TEXT event with its choice, byte for byte the same text."""
    texts = ["Hel", "lo ", "wörld 🌍", '\n\t"quoted" \\']
    events = read(chunk({"content": ""}), *(chunk({"content": text}, index=2) for text in texts))
    assert events[1:] == [Event(EventKind.TEXT, 2, text) for text in texts]


def test_unmodelled_members_of_a_delta_cross_as_their_json() -> None:
    """Tool calls, reasoning, refusals, lists as content: as they came, in a DELTA before their chunk's text."""
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


def test_values_cross_byte_for_byte() -> None:
    """Numbers, escapes and spacing inside of an unmodelled value are not written anew."""
    reader = ChunkReader()
    _, event = reader.read(b'{"id":"a","choices":[{"index":0,"delta":{"v": {"n": 1.0e+2 , "s":"\\u00e9"}}}]}')
    assert event.raw_json == b'{"v":{"n": 1.0e+2 , "s":"\\u00e9"}}'


def test_other_members_of_a_choice_ride_on_its_text_or_its_end() -> None:
    """Logprobs and content filter results are on the TEXT they belong to, else on the FINISH; never lost."""
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
    """Servers that send the last token together with its finish reason lose neither."""
    assert [(event.kind, event.text) for event in read(chunk({"content": "end"}, "length"))[1:]] == [
        (EventKind.TEXT, "end"),
        (EventKind.FINISH, "length"),
    ]


def test_usage_is_counted_by_the_server() -> None:
    """USAGE holds the numbers as exact, and the server's own object."""
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


def test_members_that_come_later_start_again_with_only_those() -> None:
    """Azure names the filters first and the answer's id later; a changing clock is no news, padding none at all."""
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
def test_the_short_way_reads_what_the_general_way_reads(
    chunks: list[tuple[dict[str, Any], str | None, int]],
) -> None:
    """A chunk without surprises has a decoder of its own; its events are those of the general one."""
    plain = [chunk(delta, reason, index=index) for delta, reason, index in chunks]
    general = [{**each, "x_nothing": None} for each in plain]  # an unknown member: never the short way
    assert read(*plain) == read(*general)


def test_a_completion_in_one_piece_is_read_like_a_stream() -> None:
    """A server that does not stream although it was asked to is understood."""
    message = {"role": "assistant", "content": "whole"}
    events = read({"id": "x", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": {}})
    assert [event.kind for event in events] == [EventKind.START, EventKind.TEXT, EventKind.FINISH, EventKind.USAGE]
    assert events[1].text == "whole"


@pytest.mark.parametrize("make", [ChunkReader, ChunkRelay])
def test_an_answer_is_complete_when_every_choice_has_ended(make: type[ChunkReader | ChunkRelay]) -> None:
    """Only then may a stream end without saying that it is done."""
    reader = make()
    assert not reader.complete
    reader.read(encoded(chunk({"content": "a"}, index=0)))
    reader.read(encoded(chunk({"content": "a"}, "stop", index=1)))
    assert not reader.complete
    reader.read(encoded(chunk({}, "stop", index=0)))
    assert reader.complete


NO_TEXT = [
    b'{"choices":[{"delta":{"content":"\xff"}}]}',
    b'{"choices":[{"delta":{"content":"a"},"finish_reason":"\xc3"}]}',
    b'{"choices":[{"delta":{"reasoning":"\xff"}}]}',
    b'{"choices":[],"\xff":1}',
    b'{"choices":[],"vendor":"\xff"}',
    b'{"error":{"message":"\xff"}}',
    b'{"choices":' + b"[" * 50_000,
]
"""No UTF-8, wherever it stands, and what is nested too deeply."""


@pytest.mark.parametrize(
    "payload",
    [
        b'{"choices":[}',
        b"nope",
        b"[]",
        b'{"choices":{}}',
        b'{"choices":[{"index":-1}]}',
        b'{"choices":[{"delta":[]}]}',
        *NO_TEXT,
    ],
)
def test_what_is_no_chunk_ends_the_answer(payload: bytes) -> None:
    """Broken JSON and JSON of another shape are the server's failure, before and after the first event."""
    for before in ([], [encoded(chunk({"content": "a"}))]):
        reader = ChunkReader()
        for each in before:
            reader.read(each)
        with pytest.raises(Unavailable, match="model server sent"):
            reader.read(payload)


@pytest.mark.parametrize(
    ("error", "status"),
    [({"message": "m", "code": 429}, 429), ({"message": "m", "code": "context_length"}, 502), ("text", 502)],
)
def test_an_error_in_the_stream_is_the_servers_refusal(error: object, status: int) -> None:
    """Its status is the one that it names, if it is one; its JSON is kept."""
    with pytest.raises(UpstreamRejected) as caught:
        ChunkReader().read(encoded({"error": error}))
    assert caught.value.status == status
    assert json.loads(caught.value.body) == {"error": error}


@given(st.binary(max_size=5).map(lambda data: json.dumps({"x": data.hex(), "choices": [{"delta": {}}]}).encode()))
def test_the_relay_passes_payloads_untouched(payload: bytes) -> None:
    """A CHUNK holds the payload byte for byte."""
    assert ChunkRelay().read(payload) == [Event(EventKind.CHUNK, raw_json=payload)]


@pytest.mark.parametrize("payload", [b"[1, 2]", b'{"choices": {"odd": 1}}', b'{"error":{"code":429}}', b'"x"'])
def test_the_relay_passes_json_of_any_shape(payload: bytes) -> None:
    """What the JSON means is for the client to judge, errors too; one that comes first is a refusal."""
    relay = ChunkRelay()
    relay.read(b"{}")
    assert relay.read(payload) == [Event(EventKind.CHUNK, raw_json=payload)]
    if b"error" in payload:
        with pytest.raises(UpstreamRejected) as caught:
            ChunkRelay().read(payload)
        assert caught.value.status == 429


@pytest.mark.parametrize("payload", [b'{"choices":[}', b"nope", b"", b'[1, {"a"]', *NO_TEXT])
def test_the_relay_passes_no_broken_json(payload: bytes) -> None:
    """A client would choke on it."""
    relay = ChunkRelay()
    relay.read(b"{}")
    with pytest.raises(Unavailable):
        relay.read(payload)


def test_choices_of_a_text_completion_have_their_text_beside_them() -> None:
    """Streamed or whole: what else stands in the choice crosses with the text, or with the end."""
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
