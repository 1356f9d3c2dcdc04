"""Lines of text on a page, and rows of lines."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

COLUMN = " | "
"""Separates the cells of a row."""
HYPHEN = "\ufffe"
"""Replaces the hyphen at the end of a line. The hyphen may belong to the word, or only divide it."""
SAME_ROW = 0.3
"""Baselines that differ by less than this, as a multiple of the font size, are in the same row."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of text, or one part of a line with wide gaps. Lengths are in any unit; the vertical axis points up.

    Attributes:
        text: The text, without white space at the ends.
        left: Left edge.
        right: Right edge.
        baseline: Vertical position of the baseline.
        size: Font size; in a picture, the height of the letters.
        is_bold: Whether the text is bold.
        parts: The parts of the line between gaps that are wider than a space but narrower than the usual gap
            between cells; empty if it has no such gaps. In the header of a table, each part may be a cell.
    """

    text: str
    left: float
    right: float
    baseline: float
    size: float
    is_bold: bool = False
    parts: tuple["Line", ...] = ()


def in_one_row(one: Line, other: Line) -> bool:
    """Return whether two lines are in the same row."""
    return abs(one.baseline - other.baseline) < SAME_ROW * max(one.size, other.size)


def rows(lines: Iterable[Line]) -> list[list[Line]]:
    """Return the rows of lines, from top to bottom, each row from left to right."""
    found: list[list[Line]] = []
    for line in sorted(lines, key=lambda line: -line.baseline):
        if found and in_one_row(found[-1][0], line):
            found[-1].append(line)
        else:
            found.append([line])
    return [sorted(row, key=lambda line: line.left) for row in found]


def merged(row: Sequence[Line]) -> Line:
    """Return a row as one line."""
    if len(row) == 1:
        return row[0]
    first, last = row[0], row[-1]
    return Line(COLUMN.join(line.text for line in row), first.left, last.right, first.baseline, first.size)


def consecutive_rows(lines: Sequence[Line]) -> list[list[Line]]:
    """Return the lines in the given order, with consecutive lines of the same row grouped."""
    found: list[list[Line]] = []
    for line in lines:
        if found and in_one_row(found[-1][-1], line) and line.left >= found[-1][-1].right:
            found[-1].append(line)
        else:
            found.append([line])
    return found
