from typing import Any

import msgspec
import pytest
from gateway.dialects import json_fields
from gateway.dialects.json_fields import Fields
from hypothesis import given
from hypothesis import strategies as st
from servicekit.errors import InvalidRequest

FIELDS = Fields(
    {"text": "a", "flag": True, "whole": 7, "number": 1.5, "object": {"x": 1}, "list": [1], "null": None}, "outer"
)


def test_values_are_read() -> None:
    """Each type of value has its reader."""
    assert FIELDS.text("text") == "a"
    assert FIELDS.flag("flag") is True
    assert FIELDS.integer("whole", 0, 10) == 7
    assert FIELDS.number("number", 0, 2) == 1.5
    assert FIELDS.number("whole", 0, 10) == 7
    assert FIELDS.object("object").get("x") == 1
    assert FIELDS.items("list") == [1]
    assert FIELDS.one_of("text", ("a", "b")) == "a"


@pytest.mark.parametrize("name", ["null", "absent"])
def test_null_and_absent_are_the_same(name: str) -> None:
    """A null member and an absent member have the default value."""
    assert FIELDS.text(name) == ""
    assert FIELDS.flag(name) is False
    assert FIELDS.integer(name, 0, 1) is None
    assert FIELDS.number(name, 0, 1) is None
    assert list(FIELDS.object(name).members()) == []
    assert FIELDS.items(name) is None


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (lambda fields: fields.text("whole"), "outer.whole must be a string"),
        (lambda fields: fields.flag("whole"), "outer.whole must be a boolean"),
        (lambda fields: fields.integer("flag", 0, 10), "outer.flag must be a whole number"),
        (lambda fields: fields.integer("number", 0, 10), "outer.number must be a whole number"),
        (lambda fields: fields.integer("whole", 0, 6), "outer.whole must be between 0 and 6"),
        (lambda fields: fields.number("flag", 0, 1), "outer.flag must be a number"),
        (lambda fields: fields.number("number", 0, 1), "outer.number must be between 0 and 1"),
        (lambda fields: fields.object("list"), "outer.list must be an object"),
        (lambda fields: fields.items("object"), "outer.object must be a list"),
        (lambda fields: fields.one_of("text", ("b", "c")), "outer.text must be one of b, c"),
    ],
)
def test_wrong_types_are_refused(read: Any, message: str) -> None:
    """The error names the path and the expected type."""
    with pytest.raises(InvalidRequest, match=message) as caught:
        read(FIELDS)
    assert caught.value.field == message.split()[0]


@pytest.mark.parametrize("body", [b'{"a": "\\ud800"}', b'{"a": "x'])
def test_a_lone_surrogate_or_a_cut_body_is_explained(body: bytes) -> None:
    """The parser takes half an escape at the end of a text for a cut body. The error names both causes."""
    with pytest.raises(InvalidRequest, match=r"ends too early, or an escape such as .ud800 lacks its second"):
        json_fields.members(body)


def test_null_members_have_names_but_no_values() -> None:
    """`members` omits null members, and `names` lists them."""
    assert "null" not in dict(FIELDS.members())
    assert "null" in FIELDS.names()


@given(st.binary(max_size=40))
def test_any_body_is_read_or_refused(body: bytes) -> None:
    """Any bytes raise no error other than `InvalidRequest`."""
    try:
        members = json_fields.members(body)
        for name, raw in members.items():
            json_fields.value(raw, name)
    except InvalidRequest:
        pass


def test_another_encoding_is_named() -> None:
    """The error says that the text is not UTF-8, without the text of Python's codec."""
    with pytest.raises(InvalidRequest, match=r"^The body is not valid JSON: it is not UTF-8\.$"):
        json_fields.members('{"Zürich": 1}'.encode("latin-1"))
    with pytest.raises(InvalidRequest, match=r"^x cannot be read: it is not UTF-8\.$"):
        json_fields.value(msgspec.Raw(b'"\xff"'), "x")


@pytest.mark.parametrize("raw", [b'{"a":1e400}', b'{"a":' + b"9" * 5000 + b"}", b'{"a":"\xff"}'])
def test_values_are_read_when_they_are_needed(raw: bytes) -> None:
    """An invalid value is refused only when the code reads it. The error names the member."""
    members = json_fields.members(raw)
    with pytest.raises(InvalidRequest, match=r"^x cannot be read: ") as caught:
        json_fields.value(members["a"], "x")
    assert caught.value.field == "x"
    assert "$" not in caught.value.message
