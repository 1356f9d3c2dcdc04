import copy
from typing import Any

import pytest
from gateway.deltas import members_of, merge
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
