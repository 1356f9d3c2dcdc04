"""The validation of bodies of the guardrails orchestrator's routes."""

import json
from typing import Any

import pytest
from gateway.dialects.orchestrator import fields
from gateway.dialects.orchestrator.errors import NotJson
from gateway.domain import Action, Detector
from servicekit.errors import Unprocessable


def raw(**members: Any) -> fields.Raw:
    return fields.members(json.dumps(members).encode())


def test_invalid_json_and_other_json_values_have_different_errors() -> None:
    """Invalid JSON raises `NotJson`, and a value that is not an object raises `Unprocessable`."""
    with pytest.raises(NotJson):
        fields.members(b"{")
    with pytest.raises(Unprocessable, match="must be a JSON object"):
        fields.members(b"[]")


def test_unknown_and_missing_members_are_refused() -> None:
    """The error names an unknown or a missing member."""
    fields.check_members(raw(a=1, c=1), ("a",), ("b", "c"))
    with pytest.raises(Unprocessable, match="unknown field `d`, expected `a` or `b`"):
        fields.check_members(raw(a=1, d=1), ("a",), ("b",))
    with pytest.raises(Unprocessable, match="missing field `a`"):
        fields.check_members(raw(b=1), ("a",), ("b",))


@pytest.mark.parametrize(
    ("value", "problem"), [(1, "must be a string"), (None, "must be a string"), ("", "must not be empty")]
)
def test_a_text_is_a_string_that_is_not_empty(value: Any, problem: str) -> None:
    """A text is a string that is not empty."""
    assert fields.text(raw(a="b"), "a") == "b"
    with pytest.raises(Unprocessable, match=f"`a` {problem}"):
        fields.text(raw(a=value), "a")


@pytest.mark.parametrize("value", ["b", [1], {}, [], None])
def test_a_list_has_at_least_one_item(value: Any) -> None:
    """A list has at least one text or one object."""
    assert fields.texts(raw(a=["b"]), "a") == ("b",)
    assert fields.objects(raw(a=[{}]), "a") == [{}]
    for read in (fields.texts, fields.objects):
        with pytest.raises(Unprocessable, match="`a` must"):
            read(raw(a=value), "a")


def test_detectors_of_a_route_that_only_detects() -> None:
    """Each detector has its parameters and the action `report`. At least one is required."""
    chosen = fields.detectors(raw(detectors={"a": {"threshold": 0.5}, "b": None}))
    assert chosen == (
        Detector("a", Action.REPORT, params_json=b'{"threshold":0.5}'),
        Detector("b", Action.REPORT, params_json=b"{}"),
    )
    for wrong, problem in (
        ({}, "is required"),
        ([], "must be an object"),
        ({"a": 1}, "`detectors.a` must be an object"),
    ):
        with pytest.raises(Unprocessable, match=problem):
            fields.detectors(raw(detectors=wrong))
    with pytest.raises(Unprocessable, match="missing field `detectors`"):
        fields.detectors(raw())


def test_a_choice_is_an_allowed_word_or_empty() -> None:
    """A choice is one of the allowed words, or an empty string for null."""
    assert (fields.choice(raw(a="b"), "a", ("b",)), fields.choice(raw(a=None), "a", ("b",))) == ("b", "")
    with pytest.raises(Unprocessable, match="`a` must be one of `b`, `c`"):
        fields.choice(raw(a="d"), "a", ("b", "c"))
