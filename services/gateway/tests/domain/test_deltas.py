import copy
import json
from typing import Any

import pytest
from gateway.domain import Annotation, Delta, Reasoning, Refusal, ToolCall
from gateway.domain.deltas import drop_numbers, members_of, merge, parts_of, tool_calls_json
from hypothesis import given
from hypothesis import strategies as st
from servicekit.errors import Unavailable


def merged(*pieces: dict[str, Any]) -> dict[str, Any]:
    whole: dict[str, Any] = {}
    for piece in copy.deepcopy(pieces):
        merge(whole, piece)
    return whole


def test_tool_calls_grow_by_their_number() -> None:
    """Names, ids and types come once, arguments grow; calls that are told in turns do not mix."""
    whole = merged(
        {"tool_calls": [{"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": ""}}]},
        {"tool_calls": [{"index": 1, "id": "b", "type": "function", "function": {"name": "g", "arguments": "{"}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"x"'}}]},
        {
            "tool_calls": [
                {"index": 0, "function": {"arguments": ":1}"}},
                {"index": 1, "function": {"arguments": "}"}},
            ]
        },
    )
    assert whole["tool_calls"] == [
        {"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}},
        {"index": 1, "id": "b", "type": "function", "function": {"name": "g", "arguments": "{}"}},
    ]


def test_reasoning_grows_and_log_probabilities_are_joined() -> None:
    """As OpenAI's clients put pieces together."""
    assert merged({"reasoning": "a"}, {"reasoning": "b"}) == {"reasoning": "ab"}
    assert merged({"logprobs": {"content": [1]}}, {"logprobs": {"content": [2, 3]}}) == {
        "logprobs": {"content": [1, 2, 3]}
    }


def test_null_says_nothing_new() -> None:
    """It does not wipe out what was there, but an answer that was null stays so."""
    assert merged({"a": None}) == {"a": None}
    assert merged({"a": 1}, {"a": None}) == {"a": 1}


@given(st.lists(st.text(max_size=4), max_size=8), st.lists(st.integers(), max_size=8))
def test_pieces_are_joined_in_order(texts: list[str], items: list[int]) -> None:
    """However many."""
    whole = merged(*({"t": text} for text in texts), *({"l": [item]} for item in items))
    assert whole.get("t", "") == "".join(texts)
    assert whole.get("l", []) == items


def test_a_long_list_is_joined_in_no_time() -> None:
    """Log probabilities of a long answer: each piece costs the same, however much came before."""
    whole: dict[str, Any] = {"content": []}
    for number in range(20_000):
        merge(whole, {"content": [{"token": str(number), "logprob": -1.0}]})
    assert len(whole["content"]) == 20_000


def test_filters_say_the_latest_of_each_category() -> None:
    """They come with every piece; words of them are not put together."""
    whole = merged(
        {"content_filter_results": {"hate": {"severity": "safe"}}},
        {"content_filter_results": {}},
        {"content_filter_results": {"hate": {"severity": "low"}, "violence": {"severity": "safe"}}},
    )
    assert whole == {"content_filter_results": {"hate": {"severity": "low"}, "violence": {"severity": "safe"}}}


@pytest.mark.parametrize("raw", [b'{"a":"\\ud800"}', b"[]", b"{", b'{"a":1e400}', b"[" * 100_000])
def test_what_is_no_object_is_the_model_servers_failure(raw: bytes) -> None:
    """Not a defect of ours."""
    with pytest.raises(Unavailable):
        members_of(raw)


def test_each_part_of_a_delta_has_its_type() -> None:
    """Tool calls, reasoning, a refusal and annotations; members of vendors are no parts."""
    citation = {"start_index": 4, "end_index": 9, "url": "https://example.org/a", "title": "A"}
    delta = {
        "content": None,
        "vendor": {"x": 1},
        "reasoning_content": "First, ",
        "refusal": "No.",
        "tool_calls": [{"index": 1, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{"}}],
        "annotations": [{"type": "url_citation", "url_citation": citation}, {"type": "file", "file": {}}],
    }
    thought, refusal, call, cited, other = Delta(0, "", json.dumps(delta).encode()).parts
    assert (thought, refusal) == (Reasoning("First, "), Refusal("No."))
    assert isinstance(call, ToolCall)
    assert (call.index, call.id, call.name, call.arguments) == (1, "c", "f", "{")
    assert json.loads(call.raw_json) == delta["tool_calls"][0]  # type: ignore[index]  # a list
    assert isinstance(cited, Annotation)
    assert (cited.kind, cited.start, cited.end, cited.url, cited.title) == (
        "url_citation",
        4,
        9,
        "https://example.org/a",
        "A",
    )
    assert isinstance(other, Annotation)
    assert (other.kind, other.start, other.url) == ("file", None, "")


def test_text_alone_has_no_parts() -> None:
    """Neither has a delta that only says null."""
    assert Delta(0, "text").parts == ()
    assert parts_of({"tool_calls": None, "refusal": None, "reasoning": "", "annotations": None}) == ()


def test_a_legacy_call_has_no_number() -> None:
    """There is one at most."""
    [call] = parts_of({"function_call": {"name": "f", "arguments": "{}"}})
    assert call == ToolCall(None, "", "f", "{}", b'{"name":"f","arguments":"{}"}')


@pytest.mark.parametrize("odd", [1, "x", [1], {"function": 3}, [{"function": {"name": 4, "arguments": []}}]])
def test_calls_of_an_odd_shape_are_calls(odd: Any) -> None:
    """Detectors judge them and nothing is lost: servers of models send what they like."""
    calls = parts_of({"tool_calls": odd})
    assert len(calls) == 1
    assert isinstance(calls[0], ToolCall)
    assert json.loads(tool_calls_json([calls[0]])) == {"tool_calls": odd if isinstance(odd, list) else [odd]}


def test_what_cannot_be_read_is_the_model_servers_failure() -> None:
    """As anywhere else."""
    with pytest.raises(Unavailable):
        _ = Delta(0, "", b"{").parts


@given(
    st.lists(st.tuples(st.integers(0, 2), st.text(max_size=5)), min_size=1, max_size=12),
    st.lists(st.text(max_size=5), max_size=4),
)
def test_parts_of_pieces_are_pieces_of_the_parts(calls: list[tuple[int, str]], thoughts: list[str]) -> None:
    """Arguments and reasoning, put together piece by piece, are those of the whole message; nothing is lost on the
    way through the typed calls.
    """
    deltas: list[dict[str, Any]] = [
        {"tool_calls": [{"index": at, "function": {"arguments": text}}]} for at, text in calls
    ]
    deltas += [{"reasoning": text} for text in thoughts]
    arguments: dict[int | None, str] = {}
    reasoning = ""
    for delta in deltas:
        for part in parts_of(delta):
            if isinstance(part, ToolCall):
                arguments[part.index] = arguments.get(part.index, "") + part.arguments
                assert json.loads(tool_calls_json([part])) == delta
            elif isinstance(part, Reasoning):
                reasoning += part.text
    whole = merged(*deltas)
    found = parts_of(whole)
    assert {part.index: part.arguments for part in found if isinstance(part, ToolCall)} == arguments
    assert "".join(part.text for part in found if isinstance(part, Reasoning)) == reasoning
    drop_numbers(whole)
    assert not any("index" in call for call in whole["tool_calls"])
