import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ingest.parsing.content import Page
from ingest.parsing.formats import records
from ingest.parsing.refusals import Unreadable

from ..conftest import parsed


def page(source: str) -> Page:
    _, result = parsed(records.parse, source, ".json")
    assert isinstance(result, Page)
    return result


@pytest.mark.parametrize(
    "source",
    [
        '[{"id": 1, "name": "A"}, {"id": 2.50, "tags": ["x", "y"], "at": {"city": "Oban"}}]',
        '{"id": 1, "name": "A"}\n\n{"id": 2.50, "tags": ["x", "y"], "at": {"city": "Oban"}}\n',
    ],
)
def test_a_record_is_a_block(source: str) -> None:
    """A record of an array or of JSON Lines is one block. Each line has the path and the unchanged value."""
    [section] = page(source).sections
    assert section.text == "id: 1\nname: A\n\nid: 2.50\ntags: x, y\nat.city: Oban"
    assert [section.text[start:end] for start, end in section.whole] == section.text.split("\n\n")


def test_large_objects_have_sections() -> None:
    """An object that is too large for a record becomes a section with its name."""
    source = {"title": "Fleet", "ships": {"Petrel": {"log": "a " * 500}, "Fulmar": {"seats": 300}}, "x": [1, None]}
    sections = page(json.dumps(source)).sections
    assert [section.headings for section in sections] == [(), ("ships", "Petrel"), ("ships", "Fulmar")]
    assert sections[0].text == "title: Fleet\nx: 1"
    assert sections[2].text == "Fulmar\n\nseats: 300"


def test_nothing_is_lost() -> None:
    """Repeated names, nested lists, booleans and texts with several lines are read."""
    assert page('{"a": 1, "a": 2, "m": [[1, 2], ["x"]], "t": true, "s": "one\\ntwo"}').sections[0].text == (
        "a: 1\na: 2\nm[0]: 1, 2\nm[1]: x\nt: true\ns: one\ntwo"
    )


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ('{"a": [1, 2', "line 1, column 12"),
        ('{"a": 1}\n{"b": 2}\n{"c"', "line 3"),
        ("[1, 2]]", "Extra data"),
        ('{"a": 1} x\n{"b": 2}', "Extra data"),
        (" ", "no text"),
    ],
)
def test_refusals_name_the_position(source: str, message: str) -> None:
    """The refusal of a truncated file, or of a file with text after its end, names the position."""
    with pytest.raises(Unreadable, match=message):
        page(source)


def named(key: str, inside: list[str]) -> list[str]:
    return [key, *inside] if inside else []


def words(value: Any) -> list[str]:
    match value:
        case dict():
            return [word for key, item in value.items() for word in named(key, words(item))]
        case list():
            return [word for item in value for word in words(item)]
    return [value]


keys = st.text("kxyz", min_size=1, max_size=3)
values = st.recursive(
    st.text("abc", min_size=1),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(keys, values, max_size=4) | st.lists(values, max_size=4))
@settings(max_examples=50)
def test_every_value_is_read(value: Any) -> None:
    """For any structure, the sections contain each name and each text."""
    expected = words(value)
    if not expected:
        return
    text = "\n".join(section.text for section in page(json.dumps(value)).sections)
    assert all(word in text for word in expected)
