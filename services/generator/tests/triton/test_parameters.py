"""The parameters of a Triton model, which accepts one text."""

import json
from typing import Any

import pytest
from generator.triton.parameters import parse_sampling
from servicekit.errors import InvalidRequest


def read(**parameters: Any) -> Any:
    return parse_sampling(json.dumps(parameters).encode(), 100)


def test_given_parameters_keep_their_names() -> None:
    """Given parameters keep their names, and the length of an answer is always limited."""
    assert read().given == {"max_tokens": 100}
    given = {"temperature": 0.5, "top_k": 3, "seed": 7, "max_tokens": 5, "repetition_penalty": 1.1}
    assert read(**given, max_completion_tokens=None).given == given
    assert read(max_tokens=5, max_completion_tokens=9).max_tokens == 9
    assert read(max_tokens=9, max_completion_tokens=5).max_tokens == 5
    assert (read(stop="a").stops, read(stop=["a", "b"]).stops, read(stop=None).stops) == (["a"], ["a", "b"], [])


def test_what_changes_nothing_is_known() -> None:
    """A value without an effect is neutral, so that a model without the parameter accepts it."""
    parsed = read(top_p=1, presence_penalty=0, temperature=1)
    assert [parsed.is_neutral(name) for name in ("top_p", "presence_penalty", "temperature")] == [True, True, False]


@pytest.mark.parametrize(
    "harmless",
    [
        {"user": "ann", "metadata": {}, "store": True, "service_tier": "auto", "safety_identifier": "x"},
        {"logprobs": False, "logit_bias": {}, "tools": [], "tool_choice": "none", "modalities": ["text"]},
        {"response_format": {"type": "text"}, "reasoning_effort": None, "n": 1, "parallel_tool_calls": True},
    ],
)
def test_parameters_without_an_effect_are_ignored(harmless: dict[str, Any]) -> None:
    """Parameters without an effect on the text are ignored."""
    assert read(**harmless).given == {"max_tokens": 100}


@pytest.mark.parametrize(
    ("parameters", "field"),
    [
        ({"logit_bias": {"50256": -100}}, "logit_bias"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"reasoning_effort": "high"}, "reasoning_effort"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"n": 0}, "n"),
        ({"n": 2}, "n"),
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"logprobs": True}, "logprobs"),
        ({"echo": True}, "echo"),
        ({"best_of": 3}, "best_of"),
        ({"suffix": "."}, "suffix"),
        ({"x_own": 1}, "x_own"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": "many"}, "max_tokens"),
        ({"stop": ["a", ""]}, "stop[1]"),
        ({"max_completion_tokens": -1}, "max_completion_tokens"),
        ({"stop": ""}, "stop"),
        ({"stop": [1]}, "stop[0]"),
        ({"temperature": "warm"}, "temperature"),
        ({"top_k": 1.5}, "top_k"),
    ],
)
def test_other_parameters_are_refused_by_name(parameters: dict[str, Any], field: str) -> None:
    """Any other parameter is refused by name."""
    with pytest.raises(InvalidRequest) as caught:
        read(**parameters)
    assert caught.value.field == field
