"""Splits a source's text into quotable passages: sentences, list items, rows of tables."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from text.sentences import sentences

_HEADING = re.compile(r"(#{1,6})\s+(.*?)\s*#*$")
_NUMBERED = re.compile(r"(\d{1,2}(?:\.\d{1,2})*)\.?\s+[^\W\d_].{0,70}$")
_BULLET = re.compile(r"\s*(?:[-*•\u2013▪◦·]|\(?\d{1,3}[.)]|[a-z]\))\s+")
_ROW = re.compile(r"\s*\|.*\|\s*$")
_FIELD = re.compile(r"([^:;]{1,80}): \S")
_RULE = re.compile(r"[\s|:-]*-{2,}[\s|:-]*$")
_MARKS = re.compile(r"\*\*|__|(?<!\w)[*_](?=\w)|(?<=\w)[*_](?!\w)|`")
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)\s]*\)")
_ENDED = re.compile(r"[.!?…:;।؟\u06d4。\uff01\uff1f][\"'”\u2019»)\]」』\uff09]*$")
# A line break between two characters of Chinese or Japanese is no space. Korean has spaces between its words.
_UNSPACED = re.compile("[\u3000-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uff9f]{2}")
_SHORT_LINE = 80
# A line counts as full if, together with the next word, it has at least this share of the longest line's length.
# The share is below 1, because the widths of letters differ.
_FULL = 0.85


@dataclass(frozen=True, slots=True)
class Passage:
    """A quotable passage.

    Attributes:
        text: The text of the passage.
        context: The text above the passage that explains it: headings, the introduction of a table or list.
        previous: The previous sentence of the paragraph; empty for the first sentence.
        following: The next sentence of the paragraph; empty for the last sentence.
        is_label: The passage may be a heading or the introduction of a list. It ranks below a sentence.
        table: For a row of a table: the number of the table in the text, from 1; else 0.
    """

    text: str
    context: str = ""
    previous: str = ""
    following: str = ""
    is_label: bool = False
    table: int = 0


def passages(text: str) -> list[Passage]:
    """Return the passages of a text, in order. The text may be Markdown, or wrapped to the width of a page."""
    return list(_Reader(text).read())


class _Reader:
    """Reads the lines once; tracks the headings and the current paragraph."""

    def __init__(self, text: str) -> None:
        self._lines = [line.rstrip() for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n")]
        self._width = max((len(line) for line in self._lines if not _ROW.match(line)), default=0)
        self._headings: list[tuple[int, str]] = []
        self._paragraph: list[str] = []
        self._lead = ""  # the sentence that introduces a list or a table
        self._header: list[str] | None = None
        self._table = 0
        self._in_table = False

    def read(self) -> Iterator[Passage]:
        for index, line in enumerate(self._lines):
            following = self._lines[index + 1] if index + 1 < len(self._lines) else ""
            if _ROW.match(line):
                yield from self._flush()
                yield from self._row(line, following)
                continue
            self._header = None
            if self._is_record(index):
                yield from self._flush()
                yield Passage(_plain(line), self._context(), table=self._table_number())
                continue
            self._in_table = False
            heading = _HEADING.match(line)
            if heading:
                yield from self._flush()
                self._lead = ""
                self._enter_section(len(heading[1]), _plain(heading[2]))
            elif not line.strip():
                yield from self._flush()
            else:
                is_title = self._is_title(line, following)
                if is_title or self._is_item(line):
                    yield from self._flush()
                self._paragraph.append(line.strip())
                if is_title or self._ends_here(line, following):
                    yield from self._flush(title=is_title)
        yield from self._flush()

    def _enter_section(self, level: int, heading: str) -> None:
        self._headings = [(above, text) for above, text in self._headings if above < level]
        self._headings.append((level, heading))

    def _is_record(self, index: int) -> bool:
        """Return whether the line is a row in the format of ingest: ``Name: value; …``, or ``|`` between cells.

        A line with only one name is a row only if the same name is the last name of a neighbouring line.
        """
        line = self._lines[index]
        names = _fields(line)
        if len(names) != 1:
            return len(names) > 1 or " | " in line
        neighbours = [self._lines[near] for near in (index - 1, index + 1) if 0 <= near < len(self._lines)]
        return any(_fields(other)[-1:] == names for other in neighbours)

    def _table_number(self) -> int:
        """Return the number of the current table; begin a table if the previous line belongs to none."""
        self._table += not self._in_table
        self._in_table = True
        return self._table

    def _ends_here(self, line: str, following: str) -> bool:
        """Return whether the line break is intended: the next word would fit, and no sentence continues."""
        following = following.strip()
        if not following or following[0].islower():
            return not following
        in_a_sentence = len(self._paragraph) > 1 or len(sentences(line)) > 1
        if in_a_sentence and not _ENDED.search(line):
            return False
        return len(line) + 1 + len(following.split(maxsplit=1)[0]) < self._width * _FULL

    def _is_item(self, line: str) -> bool:
        """Return whether a list item begins. A number at the start of a line may also belong to a sentence."""
        match = _BULLET.match(line)
        return match is not None and (not match[0].strip()[0].isalnum() or not self._paragraph)

    def _is_title(self, line: str, following: str) -> bool:
        """Return whether the line is a numbered heading without markup, such as ``4.2 Rescue boat``."""
        starts_paragraph = not self._paragraph or _ENDED.search(self._paragraph[-1]) is not None
        # An empty line after `4 …` may end a list. `4.2 …` always begins a section.
        dotted = re.match(r"\d+\.\d", line.strip()) is not None
        continues = following.strip()[:1].islower() or not (following.strip() or dotted)
        return (
            starts_paragraph
            and not continues
            and _NUMBERED.match(line.strip()) is not None
            and not _ENDED.search(line)
        )

    def _flush(self, *, title: bool = False) -> Iterator[Passage]:
        if not self._paragraph:
            return
        bullet = _BULLET.match(self._paragraph[0]) is not None and not title
        text = _plain(_joined(self._paragraph))
        self._paragraph = []
        if title:
            self._lead = ""
            number = text.split(maxsplit=1)[0].rstrip(".")
            self._enter_section(7 + number.count("."), text)
            return
        if bullet:
            text = _BULLET.sub("", text, count=1)
        context = self._context() if bullet else self._context(lead=False)
        found = sentences(text)
        previous, label = "", False
        for index, sentence in enumerate(found, start=1):
            introduces = sentence.endswith(":") or not _ENDED.search(sentence)
            label = not bullet and len(sentence) <= _SHORT_LINE and introduces
            yield Passage(sentence, context, previous, found[index] if index < len(found) else "", label)
            previous = sentence
        if not bullet:
            self._lead = previous if label else ""

    def _row(self, line: str, following: str) -> Iterator[Passage]:
        cells = [_plain(cell.strip()) for cell in line.strip().strip("|").split("|")]
        if _RULE.match(line):
            return
        if self._header is None:
            self._header = cells
            if _RULE.match(following):
                return
            self._header = [""] * len(cells)
        context = f"{self._context()} {' '.join(self._header)}".strip()
        yield Passage(_row_text(self._header, cells), context, table=self._table_number())

    def _context(self, *, lead: bool = True) -> str:
        above = [text for _, text in self._headings]
        return " ".join([*above, self._lead] if lead and self._lead else above)


def _fields(line: str) -> list[str]:
    """Return the names in a line ``Name: value; Name: value``; an empty list if most parts have no name."""
    if ": " not in line:
        return []
    parts = line.split("; ")
    names = [match[1] for match in map(_FIELD.match, parts) if match]
    return names if 2 * len(names) > len(parts) or (len(names), len(parts)) == (1, 2) else []


def _row_text(header: list[str], cells: list[str]) -> str:
    """Return a row that is readable without its table: the first cell, then the others with their column names."""
    named = [f"{name}: {cell}" if name else cell for name, cell in zip(header[1:], cells[1:], strict=False) if cell]
    return f"{cells[0]} ({', '.join(named)})" if named else cells[0]


def _joined(lines: list[str]) -> str:
    text = lines[0]
    for line in lines[1:]:
        # Keep a hyphen at the end of a line: the text does not show whether the line break added it.
        in_word = text.endswith("-") and text[-2:-1].isalpha() and line[:1].islower()
        text += line if in_word or _UNSPACED.match(text[-1:] + line[:1]) else f" {line}"
    return text


def _plain(text: str) -> str:
    return " ".join(_MARKS.sub("", _LINK.sub(r"\1", text)).split())
