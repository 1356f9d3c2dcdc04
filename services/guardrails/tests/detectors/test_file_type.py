"""guardrails.detectors.file_type: is a text the JSON, YAML or XML that it should be?"""

import json

import pytest
from guardrails.detectors.file_type import file_type
from guardrails.detectors.params import BadParam
from guardrails.testing import quick

_KIND = file_type(1000)
_SCHEMA = json.dumps(
    {"type": "object", "required": ["a"], "properties": {"a": {"type": "string", "pattern": "^(x+)+$"}}}
)
_BOMB = "a: &a [1,1]\n" + "".join(
    f"{c}: &{c} [{', '.join(['*' + p] * 40)}]\n" for p, c in zip("abc", "bcd", strict=True)
)
_XML_BOMB = '<!DOCTYPE x [<!ENTITY a "b">]><x>&a;</x>'


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("json", ['{"a": [1, null]}', "3"], ["{", "{'a': 1}", "", "[" * 100_000]),
        (
            "yaml",
            ["a: 1\nb: [x, y]", "- a\n- b"],
            ["a: b: c", "plain words", "a: [", _BOMB, "!!python/object:a {}"],
        ),
        ("xml", ["<a><b/></a>"], ["<a>", "text", _XML_BOMB]),
        ("json-within", ['So: {"a": 1} and {"b": {}}.', "no objects, {braces} only"], ['So: {"a": 1']),
        (
            f"json-with-schema:{_SCHEMA}",
            ['{"a": "xx"}'],
            ['{"a": 1}', "{}", "[]", "{", json.dumps({"a": "x" * 40 + "!"})],
        ),
        (f"yaml-with-schema:{_SCHEMA}", ["a: xx"], ["a: 1", "b: x"]),
    ],
)
def test_types(kind: str, good: list[str], bad: list[str]) -> None:
    """What is not of the type is one detection over all of the text, with the reason; nothing makes it slow."""
    detector = quick(_KIND, file_type=[kind])
    assert [detector.detect(text) for text in good] == [[]] * len(good)
    for text in bad:
        (found,) = detector.detect(text)
        assert (found.start, found.end, found.type) == (0, len(text), "file_type")
        assert found.name.startswith(f"invalid_{kind.partition('-')[0]}")
        assert json.loads(found.extra)["metadata"]["reason"]


def test_required_elements() -> None:
    """A text may have to have some objects."""
    detector = quick(_KIND, file_type=["json-within"], required_elements=2)
    assert detector.detect('{"a": 1} {"b": 2}') == []
    assert [found.name for found in detector.detect('{"a": 1}')] == ["invalid_json_within"]


@pytest.mark.parametrize(
    "wrong",
    [
        "pdf", "json-with-schema:", "json-with-schema:{", 'json-with-schema:{"type": 3}',
        'json-with-schema:{"$ref": "http://127.0.0.1:1/schema"}', "xml-with-schema:{}",
    ],
)  # fmt: skip
def test_wrong_parameters(wrong: str) -> None:
    """Unknown types and schemas that cannot be used are refused, by their place; nothing is fetched."""
    with pytest.raises(BadParam) as raised:
        quick(_KIND, file_type=["json", wrong])
    assert raised.value.path == "file_type[1]"
