import copy
import json
from typing import Any

import pytest
from gateway.domain import Annotation, Delta, Reasoning, Refusal, ToolCall
from gateway.domain.deltas import drop_indexes, members_of, merge, parts_of, tool_calls_json
from hypothesis import given
from hypothesis import strategies as st
from servicekit.errors import Unavailable


def merged(*pieces: dict[str, Any]) -> dict[str, Any]:
    whole: dict[str, Any] = {}
    for piece in copy.deepcopy(pieces):
        merge(whole, piece)
    return whole


def test_tool_calls_are_merged_by_their_index() -> None:
    """The arguments of each call are joined. Its id, name and type are in the first piece only."""
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


def test_reasoning_and_log_probabilities_are_joined() -> None:
    """Texts and lists are joined, as OpenAI's clients do."""
    assert merged({"reasoning": "a"}, {"reasoning": "b"}) == {"reasoning": "ab"}
    assert merged({"logprobs": {"content": [1]}}, {"logprobs": {"content": [2, 3]}}) == {
        "logprobs": {"content": [1, 2, 3]}
    }


def test_null_does_not_replace_a_value() -> None:
    """Null does not replace a value. A member that is only null stays null."""
    assert merged({"a": None}) == {"a": None}
    assert merged({"a": 1}, {"a": None}) == {"a": 1}


@given(st.lists(st.text(max_size=4), max_size=8), st.lists(st.integers(), max_size=8))
def test_pieces_are_joined_in_order(texts: list[str], items: list[int]) -> None:
    """Any number of pieces are joined in order."""
    whole = merged(*({"t": text} for text in texts), *({"l": [item]} for item in items))
    assert whole.get("t", "") == "".join(texts)
    assert whole.get("l", []) == items


def test_a_list_is_extended_in_place() -> None:
    """A piece is appended to the list without a copy, so that the time for a piece does not grow with the list."""
    items: list[Any] = [{"token": "a", "logprob": -1.0}]
    whole: dict[str, Any] = {"content": items}
    merge(whole, {"content": [{"token": "b", "logprob": -1.0}]})
    assert whole["content"] is items
    assert [item["token"] for item in items] == ["a", "b"]


def test_the_latest_filter_of_each_category_is_kept() -> None:
    """Each piece has filter results. The latest result of each category replaces the earlier ones."""
    whole = merged(
        {"content_filter_results": {"hate": {"severity": "safe"}}},
        {"content_filter_results": {}},
        {"content_filter_results": {"hate": {"severity": "low"}, "violence": {"severity": "safe"}}},
    )
    assert whole == {"content_filter_results": {"hate": {"severity": "low"}, "violence": {"severity": "safe"}}}


@pytest.mark.parametrize("raw", [b'{"a":"\\ud800"}', b"[]", b"{", b'{"a":1e400}', b"[" * 100_000])
def test_invalid_members_are_a_failure_of_the_model_server(raw: bytes) -> None:
    """Invalid JSON, or another value than an object, raises `Unavailable`."""
    with pytest.raises(Unavailable):
        members_of(raw)


def test_each_part_of_a_delta_has_its_type() -> None:
    """Tool calls, reasoning, refusals and annotations are typed parts. Vendor members are not parts."""
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
    """A delta with text alone, or with null members, has no parts."""
    assert Delta(0, "text").parts == ()
    assert parts_of({"tool_calls": None, "refusal": None, "reasoning": "", "annotations": None}) == ()


def test_a_legacy_call_has_no_index() -> None:
    """A `function_call` becomes a tool call without an index."""
    [call] = parts_of({"function_call": {"name": "f", "arguments": "{}"}})
    assert call == ToolCall(None, "", "f", "{}", b'{"name":"f","arguments":"{}"}')


@pytest.mark.parametrize("odd", [1, "x", [1], {"function": 3}, [{"function": {"name": 4, "arguments": []}}]])
def test_malformed_calls_are_calls(odd: Any) -> None:
    """A malformed tool call is a part with its JSON, so that detectors judge it and nothing is lost."""
    calls = parts_of({"tool_calls": odd})
    assert len(calls) == 1
    assert isinstance(calls[0], ToolCall)
    assert json.loads(tool_calls_json([calls[0]])) == {"tool_calls": odd if isinstance(odd, list) else [odd]}


@given(
    st.lists(st.tuples(st.integers(0, 2), st.text(max_size=5)), min_size=1, max_size=12),
    st.lists(st.text(max_size=5), max_size=4),
)
def test_parts_of_pieces_join_to_the_parts_of_the_whole(calls: list[tuple[int, str]], thoughts: list[str]) -> None:
    """The joined parts of the pieces are the parts of the joined pieces.

    The typed calls keep all members of the pieces.
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
    drop_indexes(whole)
    assert not any("index" in call for call in whole["tool_calls"])
