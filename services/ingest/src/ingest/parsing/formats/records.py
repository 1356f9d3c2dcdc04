"""JSON and JSON Lines: one block for each record, with a line ``path: value`` for each value."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ingest.parsing.content import Head, Page
from ingest.parsing.formats import plain
from ingest.parsing.frames import Request
from ingest.parsing.refusals import Unreadable
from ingest.parsing.registry import format_by_suffix
from ingest.parsing.text.clean import collapse, flat
from ingest.parsing.text.decode import text_of
from ingest.parsing.text.outline import Outline

_JSON = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:\{\s*(?:\"|\})|\[\s*(?:[\[{\"\d\]-]|true|false|null))")
_MAX_CHARACTERS = 800
"""Maximum number of characters of an object in one block. A longer object is split into sections, unless it is an
item of a list or nested deeper than `_MAX_HEADING_LEVEL`.
"""
_MAX_HEADING_LEVEL = 5


def recognises(_path: Path, head: bytes) -> bool:
    """Return whether a text begins like JSON."""
    return _JSON.match(head) is not None


def parse(request: Request) -> Iterator[Head | Page]:
    """Yield the head and the single page of JSON or JSON Lines.

    A file that begins like JSON but is invalid is read as plain text, unless its name has a known suffix.

    Raises:
        Unreadable: The file is invalid JSON.
    """
    try:
        value = _loaded(text_of(request))
    except Unreadable:
        if format_by_suffix(request.suffix.lower()) is not None:
            raise
        yield from plain.parse(request)
        return
    yield Head("application/json")
    outline = Outline()
    fill(outline, value)
    yield Page(0, outline.end_page())


def _loaded(text: str) -> Any:
    """Parse JSON: objects become tuples of pairs, to keep duplicate names; numbers remain text.

    The lines of JSON Lines become a list.
    """
    text = text.removeprefix("\ufeff").strip()
    if not text:
        raise Unreadable("The document has no text.")
    try:
        return _loads(text)
    except json.JSONDecodeError as error:
        lines = text.split("\n")
        if error.msg != "Extra data" or error.pos < len(lines[0]):
            raise _damaged(error, error.lineno) from error
    values = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                values.append(_loads(line))
            except json.JSONDecodeError as error:
                raise _damaged(error, number) from error
    return values


def _damaged(error: json.JSONDecodeError, line: int) -> Unreadable:
    return Unreadable(f"The JSON is damaged or truncated: {error.msg} at line {line}, column {error.colno}.")


def _loads(text: str) -> Any:
    return json.loads(text, object_pairs_hook=tuple, parse_int=str, parse_float=str, parse_constant=str)


def fill(outline: Outline, value: Any, level: int = 1) -> None:
    """Add a value to an outline.

    Args:
        outline: The outline.
        value: Objects as tuples of pairs, arrays as lists, scalars as text, booleans or None.
        level: The level of the outermost headings.
    """
    if isinstance(value, list) and _is_deep(value):
        for item in value:
            outline.block(_record(item), whole=True)
        return
    record = _record(value)
    if not isinstance(value, tuple) or len(record) <= _MAX_CHARACTERS or level > _MAX_HEADING_LEVEL:
        outline.block(record, whole=True)
        return
    outline.block(_record(tuple((name, item) for name, item in value if not _is_deep(item))), whole=True)
    for name, item in value:
        if _is_deep(item) and next(_lines(item, ""), None):
            outline.heading(level, flat(name))
            fill(outline, item, level + 1)


def _is_deep(value: Any) -> bool:
    """Return whether a value is an object, or a list that contains one."""
    return isinstance(value, tuple) or (isinstance(value, list) and any(map(_is_deep, value)))


def _record(value: Any) -> str:
    return "\n".join(_lines(value, ""))


def _lines(value: Any, path: str) -> Iterator[str]:
    """Yield the lines of a value, for example ``address.city: Oban``, without nulls and empty values."""
    match value:
        case tuple():
            for name, item in value:
                yield from _lines(item, f"{path}.{flat(name)}" if path else flat(name))
        case list() if any(isinstance(item, list | tuple) for item in value):
            for number, item in enumerate(value):
                yield from _lines(item, f"{path}[{number}]")
        case _:
            text = ", ".join(filter(None, map(_text, value))) if isinstance(value, list) else _text(value)
            if text:
                yield f"{path}: {text}" if path else text


def _text(value: Any) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else collapse(value)
