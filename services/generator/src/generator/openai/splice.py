"""Setting one member of a JSON object without touching another byte of it."""

import re
from collections.abc import Iterator

import msgspec

# Strings as a whole, so that nothing inside of one is taken for structure; then the structure.
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]:,]')
_SPACE = b" \t\r\n"


def set_member(document: bytes, name: str, value: bytes) -> bytes:
    """A JSON object whose member ``name`` has a new value; every other byte stays as it is.

    A member that stands there twice gets the value twice, because readers differ on which one counts; one that is
    missing is put first. A document that says so already comes back as it is.

    Args:
        document: A valid JSON object.
        value: A JSON value.
    """
    pieces: list[bytes] = []
    end = 0
    found = False
    for start, stop in _values(document, name):
        found = True
        pieces += (document[end:start], value)
        end = stop
    if found:
        return b"".join((*pieces, document[end:]))
    start = document.index(b"{") + 1
    comma = b"" if document[start:].lstrip(_SPACE).startswith(b"}") else b","
    return b"".join((document[:start], msgspec.json.encode(name), b":", value, comma, document[start:]))


def _values(document: bytes, name: str) -> Iterator[tuple[int, int]]:
    """Where the values of the outermost object's members of that name stand."""
    depth = 0
    key: bytes | None = None  # of the outermost object, when its colon is awaited
    start = -1  # of the value that is looked for
    for token in _TOKEN.finditer(document):
        first = token[0][:1]
        if first == b'"':
            if depth == 1 and start < 0:
                key = token[0]
        elif first in b"{[":
            depth += 1
        elif first == b":":
            if depth == 1 and key is not None and msgspec.json.decode(key) == name:
                start = token.end()
            key = None
        else:
            if start >= 0 and depth == 1:
                value = document[start : token.start()]
                left = start + len(value) - len(value.lstrip(_SPACE))
                yield left, left + len(value.strip(_SPACE))
                start = -1
            if first in b"}]":
                depth -= 1
