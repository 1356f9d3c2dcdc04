"""Sets one member of a JSON object without changing other bytes."""

import re
from collections.abc import Iterator

import msgspec

# Strings come first, so that characters inside them do not match as structure.
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]:,]')
_SPACE = b" \t\r\n"


def set_member(document: bytes, name: str, value: bytes) -> bytes:
    """Return a JSON object whose member ``name`` has a new value; all other bytes are unchanged.

    If the object has the member several times, each of them gets the value, because JSON parsers differ on which
    one counts. If the object does not have the member, it becomes the first member.

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
    """Yield start and end of each value of that name in the outermost object."""
    depth = 0
    key: bytes | None = None  # a string of the outermost object that may be a member's name
    start = -1  # the start of the value; -1 outside the value
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
