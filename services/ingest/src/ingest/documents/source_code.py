"""Finds the sections of source code that was submitted as text. A file with this text has the same sections."""

import asyncio
import contextlib
import itertools
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

import structlog
from servicekit.errors import InvalidRequest

from ingest.documents.chunking import TextSection
from ingest.documents.originals import full_disk_is_unavailable
from ingest.parsing.content import Page, Section
from ingest.parsing.text.clean import LINE_BREAK, clean
from ingest.ports import Parser

_log = structlog.get_logger(__name__)
_BREAK = re.compile(rf"{LINE_BREAK.pattern}|\n")


async def text_sections(text: str, suffix: str, parser: Parser) -> list[TextSection]:
    """Divide a text into sections by its syntax.

    A text that cannot be parsed is one section, which is split between lines. Only a line that is too long for a
    chunk is split.

    Args:
        text: The source code.
        suffix: The file name suffix of the programming language.
        parser: Parses the source code in a child process, within limits.

    Raises:
        Unavailable: The disk is full, or the child process does not start.
        ParserDefect: The parser has a defect.
    """
    sections: list[Section] = []
    try:
        with tempfile.TemporaryDirectory(prefix="causeway-code-") as scratch:
            path = Path(scratch) / f"code{suffix}"
            with full_disk_is_unavailable():
                await asyncio.to_thread(path.write_text, text, "utf-8-sig", newline="")
            async with contextlib.aclosing(parser.parse(path, path.name)) as parts:
                async for part in parts:
                    if isinstance(part, Page):
                        sections += part.sections
    except InvalidRequest as error:
        _log.warning("cannot parse source code by its syntax", suffix=suffix, error=error.message)
        sections = []
    return await asyncio.to_thread(_with_spans, text, sections)


def _with_spans(text: str, sections: Sequence[Section]) -> list[TextSection]:
    """Return the sections with their spans in ``text``.

    If the sections and the text differ in their number of non-blank lines, return one section with the whole text.

    Args:
        text: The text as it was submitted.
        sections: The sections of the cleaned text, which has the same non-blank lines.
    """
    lines = [span for span in _lines(text) if clean(text[slice(*span)]).strip()]
    counts = [_count_lines(section.text) for section in sections]
    if sum(counts) != len(lines) or not all(counts):
        return [TextSection(0, len(text), (), ((0, len(text)),))]
    found: list[TextSection] = []
    ends = itertools.accumulate(counts)
    for section, count, end in zip(sections, counts, ends, strict=True):
        section_lines = lines[end - count : end]
        start = section_lines[0][0]
        whole: list[tuple[int, int]] = []
        for begin, stop in section.whole:
            first = _count_lines(section.text[:begin])
            last = first + _count_lines(section.text[begin:stop]) - 1
            if first <= last < count:
                whole.append((section_lines[first][0] - start, section_lines[last][1] - start))
        found.append(TextSection(start, section_lines[-1][1], section.headings, tuple(whole)))
    return found


def _count_lines(text: str) -> int:
    """Return the number of non-blank lines."""
    return sum(1 for line in text.split("\n") if line.strip())


def _lines(text: str) -> list[tuple[int, int]]:
    """Return the spans of the lines, without the line breaks."""
    breaks = [match.span() for match in _BREAK.finditer(text)]
    starts = [0, *(end for _, end in breaks)]
    ends = [*(start for start, _ in breaks), len(text)]
    return list(zip(starts, ends, strict=True))
