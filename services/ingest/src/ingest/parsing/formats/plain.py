"""Plain text: the paragraphs, with hard-wrapped lines joined."""

from collections.abc import Iterator

from ingest.parsing.content import Head, Page
from ingest.parsing.frames import Request
from ingest.parsing.text.clean import clean
from ingest.parsing.text.decode import text_of
from ingest.parsing.text.layout import paragraphs
from ingest.parsing.text.lines import Line
from ingest.parsing.text.outline import Outline

_MAX_WRAPPED_CHARACTERS = 100
"""Maximum number of characters in a hard-wrapped line."""
_PROSE_SUFFIXES = ("", ".txt", ".text")


def parse(request: Request) -> Iterator[Head | Page]:
    """Yield the head and the single page of a text. Only the lines of prose are joined; see `_PROSE_SUFFIXES`.

    Raises:
        TooLarge, Unreadable: See `text_of`.
    """
    yield from parts(text_of(request), request.suffix)


def parts(text: str, suffix: str) -> tuple[Head, Page]:
    """Return the head and the single page of a decoded text."""
    outline = Outline()
    fill(outline, text, is_prose=suffix.lower() in _PROSE_SUFFIXES)
    return Head("text/plain"), Page(0, outline.end_page())


def fill(outline: Outline, text: str, *, is_prose: bool) -> None:
    """Add a text to an outline. The lines of prose are joined if none is longer than a hard-wrapped line."""
    lines = clean(text).expandtabs(4).split("\n")
    if is_prose and all(len(line) <= _MAX_WRAPPED_CHARACTERS for line in lines):
        boxes = [
            Line(line.strip(), len(line) - len(line.lstrip()), len(line.rstrip()), -number, 1)
            for number, line in enumerate(lines)
            if line.strip()
        ]
        for paragraph in paragraphs(boxes):
            outline.block(paragraph)
    else:
        for block in "\n".join(line.rstrip() for line in lines).split("\n\n"):
            outline.block(block.strip("\n"))
