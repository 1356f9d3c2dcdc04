"""Setting a member of a JSON object in place."""

import json
from typing import Any

import msgspec
import pytest
from generator.openai.splice import set_member
from hypothesis import given, settings
from hypothesis import strategies as st

values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5) | st.just("model"), inner),
    max_leaves=8,
)


@settings(max_examples=30)
@given(
    st.dictionaries(st.text(max_size=5) | st.just("model"), values, max_size=5),
    st.sampled_from([None, 1, "\t"]),
    st.booleans(),
)
def test_only_that_member_changes(document: dict[str, Any], indent: int | str | None, ascii_only: bool) -> None:
    """The result is the document with the member set, for any content and layout."""
    body = json.dumps(document, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    changed = json.loads(set_member(body, "model", b'"new"'))
    assert changed == {**document, "model": "new"}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"model":"a"}', b'{"model":"NEW"}'),
        (b'{ "x" : 1e5, "model" :\n "a" , "y":[1 ,2] }', b'{ "x" : 1e5, "model" :\n "NEW" , "y":[1 ,2] }'),
        (b'{"m":{"model":"a"},"n":"model","model":null}', b'{"m":{"model":"a"},"n":"model","model":"NEW"}'),
        (b'{"s":"\\"model\\":\\"x\\"","model":"a\\\\"}', b'{"s":"\\"model\\":\\"x\\"","model":"NEW"}'),
        (b'{"model":{"a":[1,{"b":2}]},"z":0}', b'{"model":"NEW","z":0}'),
        (b'{"\\u006dodel":"a"}', b'{"\\u006dodel":"NEW"}'),
        (b'{"model":"a","model":"b"}', b'{"model":"NEW","model":"NEW"}'),
        (b"{}", b'{"model":"NEW"}'),
        (b' { "x":1}', b' {"model":"NEW", "x":1}'),
        (b"\n{\n}\n", b'\n{"model":"NEW"\n}\n'),
    ],
)
def test_every_other_byte_stays(body: bytes, expected: bytes) -> None:
    """All other bytes stay unchanged. Repeated and escaped names are found."""
    assert set_member(body, "model", b'"NEW"') == expected


def test_a_member_of_a_large_body_is_set() -> None:
    """A member behind a text of ten megabytes is set."""
    body = b'{"messages":[{"content":"' + b"A" * 10_000_000 + b'"}],"model":"a"}'
    changed = set_member(body, "model", b'"b"')
    assert len(changed) == len(body)
    assert msgspec.json.decode(changed)["model"] == "b"
