"""Turns the lines of a page into paragraphs and headings, by the position and the size of the lines."""

import functools
import itertools
import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import cast

from ingest.parsing.text.columns import in_reading_order
from ingest.parsing.text.lines import COLUMN, HYPHEN, SAME_ROW, Line, rows
from ingest.parsing.text.outline import Outline
from ingest.parsing.text.page_tables import Table, with_tables

_SAME_SIZE = 0.05
"""Font sizes that differ by at most this fraction are the same size."""
_HEADING = 1.05
"""Minimum ratio of the size of a heading to the size of the body text."""
_MAX_HEADING_CHARACTERS = 200
"""Maximum number of characters of a heading. Longer text in large letters is a paragraph."""
_LEADING = 1.3
"""Maximum ratio of the distance between two lines of a paragraph to the usual distance."""
_SAME_EDGE = 3.0
"""Maximum difference of the left edges of lines in the same column, as a multiple of the font size. These lines
share a right margin.
"""
_EDGE_LINES = 2
"""Number of rows at the top, and at the bottom, of a page that may be headers or footers."""
_RUNNING_SHARE = 0.6
"""Minimum fraction of the sampled pages on which a header or a footer repeats."""
_RUNNING_PAGES = 3
"""Minimum number of pages on which a header or a footer repeats."""
_ITEM = re.compile(r"(?:[-–—*•·▪◦‣●○■□]|\(?(?:\d{1,3}|[A-Za-z]|[ivxIVX]{1,4})[.)])\s+\S")  # noqa: RUF001  # the dashes are intended
_ENDS = frozenset(".!?:;。！？：；…")  # noqa: RUF001  # Chinese and Japanese
_WORD = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")
_DIVIDED = re.compile(f"\\S*{HYPHEN}\\n?\\S*")
_NUMBER = re.compile(r"(?<!\d)[0-9]{1,5}(?!\d)")
_MAX_WORDS = 100_000
"""Number of words after which the words of further pages are not collected."""


@dataclass(frozen=True, slots=True)
class Style:
    """The common properties of a document's pages.

    Attributes:
        body: The most frequent font size.
        running: Headers and footers that repeat on several pages, except for page numbers (see `_masks`).
        words: Words that occur without hyphenation on the pages so far, in lower case.
    """

    body: float
    running: frozenset[str]
    words: set[str]

    @classmethod
    def of(cls, pages: Mapping[int, Sequence[Line]]) -> "Style":
        """Return the style of a document. ``pages`` has the lines of some of its pages, by page number."""
        letters: Counter[float] = Counter()
        edges: Counter[str] = Counter()
        words: set[str] = set()
        for number, lines in pages.items():
            words |= _words(lines)
            for line in lines:
                letters[round(line.size * 2) / 2] += len(line.text)
            edges.update({mask for line in _edges(lines) for mask in _masks(line.text, number)})
        minimum = max(_RUNNING_PAGES, _RUNNING_SHARE * len(pages))
        running = frozenset(text for text, pages_with in edges.items() if pages_with >= minimum)
        return cls(max(letters, key=lambda size: (letters[size], -size), default=0.0), running, words)

    def fill(self, outline: Outline, lines: Sequence[Line], number: int) -> None:
        """Add a page to an outline, without its headers and footers."""
        running = {id(line) for line in _edges(lines) if self._is_running(line, number)}
        # A page that has only headers and footers, for example a form, keeps its text.
        body_lines = [line for line in lines if id(line) not in running] or lines
        if len(self.words) < _MAX_WORDS:
            self.words.update(_words(lines))
        for is_heading, group in itertools.groupby(
            with_tables(in_reading_order(body_lines)), self._is_heading_block
        ):
            blocks = list(group)
            body = [block for block in blocks if isinstance(block, Line)]
            if is_heading:
                self._fill_headings(outline, body)
            else:
                self._fill_body(outline, blocks, body)

    def _fill_headings(self, outline: Outline, lines: Sequence[Line]) -> None:
        for heading, size in _headings(lines, self.words):
            if len(heading) <= _MAX_HEADING_CHARACTERS:
                outline.heading(-size, heading)
            else:
                outline.block(heading)

    def _fill_body(self, outline: Outline, blocks: Sequence[Line | Table], lines: Sequence[Line]) -> None:
        for is_table, group in itertools.groupby(blocks, lambda block: isinstance(block, Table)):
            if is_table:
                for table in group:
                    cast("Table", table).fill(outline)
                continue
            for text in paragraphs([block for block in group if isinstance(block, Line)], self.words, lines):
                outline.block(text, whole=COLUMN in text)

    def _is_heading_block(self, block: Line | Table) -> bool:
        return isinstance(block, Line) and self._is_heading(block)

    def _is_running(self, line: Line, number: int) -> bool:
        if self._is_heading(line) or line.text[-1] in _ENDS:  # a heading or a sentence belongs to its page
            return False
        return not self.running.isdisjoint(_masks(line.text, number))

    def _is_heading(self, line: Line) -> bool:
        return line.size >= _HEADING * self.body and any(character.isalpha() for character in line.text)


def paragraphs(
    lines: Sequence[Line], words: AbstractSet[str] = frozenset(), page: Sequence[Line] = ()
) -> list[str]:
    """Return the paragraphs of one page's lines, which are in reading order.

    Within a paragraph, the function joins lines that were only wrapped: the first word of the next line did not
    fit, or a sentence continues. It keeps other line breaks (rows, verses, items).

    Args:
        lines: The lines.
        words: Words of the document, to decide whether a word that is divided at a line break keeps its hyphen.
        page: The lines from which the function measures the usual distance and length of lines, including
            ``lines``; by default only ``lines``.
    """
    page = page or lines
    pitch = _pitch(page)

    @functools.cache  # most lines of a page have the same left edge
    def edge(left: float, size: float) -> float:
        return max(other.right for other in page if abs(other.left - left) <= _SAME_EDGE * size)

    done: list[str] = []
    for index, line in enumerate(lines):
        before = lines[index - 1] if index else None
        if before is not None and _continues_in_next_column(before, line):
            done[-1] = _join(done[-1], line.text, words)
        elif before is None or not _follows(before, line, pitch):
            done.append(line.text)
        elif abs(before.baseline - line.baseline) < SAME_ROW * line.size:
            done[-1] += COLUMN + line.text
        elif _is_wrapped(before, line, edge):
            done[-1] = _join(done[-1], line.text, words)
        else:
            done[-1] += "\n" + line.text
    return [paragraph.replace(HYPHEN, "-") for paragraph in done]


def _headings(run: Sequence[Line], words: AbstractSet[str]) -> Iterable[tuple[str, float]]:
    """Yield the headings in consecutive lines, each with its font size."""
    text, last = "", run[0]
    for line in run:
        is_apart = abs(last.baseline - line.baseline) > 2 * line.size
        if text and (is_apart or not _same_size(last, line) or _ITEM.match(line.text)):
            yield text.replace(HYPHEN, "-"), round(last.size * 2) / 2
            text = ""
        text = _join(text, line.text, words) if text else line.text
        last = line
    yield text.replace(HYPHEN, "-"), round(last.size * 2) / 2


def _same_size(one: Line, other: Line) -> bool:
    return abs(one.size - other.size) <= _SAME_SIZE * max(one.size, other.size)


def _pitch(lines: Sequence[Line]) -> float:
    """Return the usual distance of two lines of a paragraph: the lower quartile of all distances."""
    distances = [
        one.baseline - other.baseline
        for one, other in itertools.pairwise(lines)
        if _same_size(one, other) and one.baseline - other.baseline > SAME_ROW * one.size
    ]
    if len(distances) < 2:
        return distances[0] if distances else 0.0
    return statistics.quantiles(distances, n=4)[0]


def _follows(before: Line, line: Line, pitch: float) -> bool:
    distance = before.baseline - line.baseline
    is_same_row = abs(distance) < SAME_ROW * line.size
    return _same_size(before, line) and (
        is_same_row or (line.left < before.right and 0 < distance <= _LEADING * pitch)
    )


def _continues_in_next_column(before: Line, line: Line) -> bool:
    """Return whether a sentence continues at the top of the next column."""
    if not _same_size(before, line) or line.baseline <= before.baseline or line.left < before.right:
        return False
    return before.text.endswith(HYPHEN) or (before.text[-1] not in _ENDS and line.text[0].islower())


def _is_wrapped(before: Line, line: Line, edge: Callable[[float, float], float]) -> bool:
    if before.text.endswith(HYPHEN):
        return True
    if _ITEM.match(line.text) or COLUMN in before.text or COLUMN in line.text:
        return False
    if before.text[-1] not in _ENDS and line.text[0].islower():
        return True
    letter = (line.right - line.left) / len(line.text)
    word = len(line.text.split(maxsplit=1)[0])
    return before.right + letter * (word + 1) > edge(line.left, line.size)


def _join(text: str, more: str, words: AbstractSet[str]) -> str:
    if text.endswith(HYPHEN):
        return text[:-1] + ("-" if _has_hyphen(text[:-1], more, words) else "") + more
    if text.endswith("-") and text[-2:-1].isalpha() and more[:1].isalpha():
        return text + more
    if _without_spaces(text[-1:]) and _without_spaces(more[:1]):
        return text + more
    return f"{text} {more}"


def _has_hyphen(text: str, more: str, words: AbstractSet[str]) -> bool:
    """Return whether the word that is divided between ``text`` and ``more`` keeps its hyphen."""
    if not more[:1].islower():
        return True
    head = next(iter(_WORD.findall(text)[-1:]), "").lower()
    tail = next(iter(_WORD.findall(more)[:1]), "").lower()
    if head + tail in words:
        return False
    return f"{head}-{tail}" in words or (head.rpartition("-")[2] in words and tail.partition("-")[0] in words)


def _words(lines: Iterable[Line]) -> set[str]:
    """Return the words of a page, without those divided between two lines."""
    text = "\n".join(line.text for line in lines).lower()
    return set(_WORD.findall(_DIVIDED.sub(" ", text)))


def _without_spaces(character: str) -> bool:
    """Return whether the character belongs to a script without spaces between words: Chinese or Japanese."""
    return any(
        first <= character <= last
        for first, last in (("\u3000", "\u30ff"), ("\u3400", "\u9fff"), ("\uf900", "\ufaff"), ("\uff00", "\uff60"))
    )


def _edges(lines: Sequence[Line]) -> list[Line]:
    """Return the lines at the top and at the bottom of a page."""
    by_height = rows(lines)
    outer = (
        by_height if len(by_height) <= 2 * _EDGE_LINES else [*by_height[:_EDGE_LINES], *by_height[-_EDGE_LINES:]]
    )
    return [line for row in outer for line in row]


def _masks(text: str, number: int) -> set[str]:
    """Return the forms of a header or footer for comparison: the text, and the text with its page number masked."""
    numbers = _NUMBER.finditer(text)
    return {text} | {f"{text[: n.start()]}#{int(n[0]) - number}{text[n.end() :]}" for n in numbers}
