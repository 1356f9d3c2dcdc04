"""Chat requests as forms: one part contains the JSON, and the other parts contain files."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from servicekit.errors import InvalidRequest

MAX_PARTS = 65
"""The maximum number of parts: the JSON and 64 files."""

_JSON = "json"
_FILE = re.compile(r"messages\[(\d{1,6})\]\.files\[(\d{1,6})\]")


@dataclass(frozen=True, slots=True)
class File:
    """A file of a message.

    Attributes:
        message: The position of the message.
        path: The path in the request. In a form, it is the name of the part.
        name: The file name, or else the path.
        media: The media type, in lower case, without parameters.
        content: The bytes.
    """

    message: int
    path: str
    name: str
    media: str
    content: bytes


@dataclass(frozen=True, slots=True)
class Form:
    """A chat request as a form.

    Attributes:
        json: The content of the part with the JSON.
        files: The files, in the order of the form.
    """

    json: bytes
    files: tuple[File, ...]


def parse(body: bytes, content_type: str) -> Form:
    """Parse a form with a part ``json``, and parts ``messages[i].files[j]``.

    Raises:
        InvalidRequest: The form is invalid, or has unknown or too many parts.
    """
    _, options = parse_options_header(content_type.encode("latin-1", "replace"))
    boundary = options.get(b"boundary", b"")
    if not boundary:
        raise InvalidRequest("Content-Type must name the boundary of the form's parts.", field="content-type")
    json: bytes | None = None
    files: dict[str, File] = {}
    for part in _parts(body, boundary):
        name = part.option(b"name")
        if name in files or (name == _JSON and json is not None):
            raise InvalidRequest(
                f"The form has several parts named '{name[:100]}'. Send each part once.", field=name[:100]
            )
        if name == _JSON:
            json = bytes(part.content)
        else:
            files[name] = _file(name, part)
    if json is None:
        raise InvalidRequest("The form has no part named 'json'.", field=_JSON)
    return Form(json, tuple(files.values()))


@dataclass(slots=True)
class _Part:
    headers: dict[bytes, bytes] = field(default_factory=dict)
    content: bytearray = field(default_factory=bytearray)

    def option(self, name: bytes) -> str:
        """Return a parameter of the header ``Content-Disposition``, or an empty string if it is absent."""
        _, options = parse_options_header(self.headers.get(b"content-disposition", b""))
        return options.get(name, b"").decode("utf-8", "replace")


def _file(name: str, part: _Part) -> File:
    match = _FILE.fullmatch(name)
    if match is None:
        raise InvalidRequest(
            f"The form has a part named '{name[:100]}'; the allowed parts are 'json' and 'messages[i].files[j]'.",
            field=name[:100],
        )
    # A part without a type is text (RFC 7578, section 4.4).
    media, _ = parse_options_header(part.headers.get(b"content-type", b"text/plain"))
    filename = part.option(b"filename") or name
    return File(int(match[1]), name, filename[:200], media.decode("latin-1").lower(), bytes(part.content))


def _parts(body: bytes, boundary: bytes) -> Iterator[_Part]:
    reader = _Reader()
    try:
        parser = MultipartParser(boundary, reader.callbacks())  # type: ignore[arg-type]  # it expects a TypedDict
        parser.write(body)
        parser.finalize()
    except FormParserError as error:
        raise InvalidRequest(f"The form cannot be read: {error}.", field="body") from None
    if not reader.complete:
        raise InvalidRequest("The form is cut off: the end of its last part is missing.", field="body")
    yield from reader.parts


class _Reader:
    """Collects the parts of a form from the parser's events.

    Attributes:
        parts: The parts so far.
        complete: Whether the parser has reached the end of the form.
    """

    def __init__(self) -> None:
        self.parts: list[_Part] = []
        self.complete = False
        self._name = b""
        self._value = b""

    def callbacks(self) -> dict[str, object]:
        return {
            "on_part_begin": self._begin,
            "on_part_data": self._data,
            "on_header_field": self._header_name,
            "on_header_value": self._header_value,
            "on_header_end": self._header_end,
            "on_end": self._end,
        }

    def _begin(self) -> None:
        if len(self.parts) == MAX_PARTS:
            raise InvalidRequest(f"The form has more than {MAX_PARTS} parts.", field="body")
        self.parts.append(_Part())

    def _data(self, data: bytes, start: int, end: int) -> None:
        self.parts[-1].content += data[start:end]

    def _header_name(self, data: bytes, start: int, end: int) -> None:
        self._name += data[start:end]

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _header_end(self) -> None:
        self.parts[-1].headers[self._name.lower()] = self._value
        self._name = self._value = b""

    def _end(self) -> None:
        self.complete = True
