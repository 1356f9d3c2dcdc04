"""Sets one member of a JSON object without changing other bytes."""

import re
from collections.abc import Iterator

import msgspec

# Strings come first, so that characters inside them do not match as structure.
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]:,]')
_SPACE = b" \t\r\n"


def set_member(document: bytes, name: str, value: bytes) -> bytes:
    """Return a JSON object whose member ``name`` has a new value; all other bytes are unchanged.

    A duplicate member gets the value in both places, because readers differ on which one counts. A missing one is
    inserted first. A document that already has the value is returned unchanged.

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
    """Yield the positions of the values of the outermost object's members of that name."""
    depth = 0
    key: bytes | None = None  # of the outermost object, while its colon is expected
    start = -1  # of the wanted value
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
