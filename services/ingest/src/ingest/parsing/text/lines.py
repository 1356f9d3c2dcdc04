"""Lines of text on a page, and rows of them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

COLUMN = " | "
"""Stands between the cells of a row."""
HYPHEN = "\ufffe"
"""Ends a line whose last word was divided, be it by a hyphen of its own or for want of space."""
SAME_ROW = 0.3
"""Baselines that differ by less than this many letter sizes are one row's."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of text, or of several beside each other one. Lengths are in any unit; the vertical axis points up.

    Attributes:
        text: Without white space at its ends.
        left: Left edge.
        right: Right edge.
        baseline: Height of its baseline.
        size: Size of its letters.
        is_bold: It is set in a bold face.
        parts: What it is divided into by gaps that are too narrow for cells and wide for words; empty without one.
    """

    text: str
    left: float
    right: float
    baseline: float
    size: float
    is_bold: bool = False
    parts: tuple["Line", ...] = ()


def in_one_row(one: Line, other: Line) -> bool:
    """Whether two lines are beside each other."""
    return abs(one.baseline - other.baseline) < SAME_ROW * max(one.size, other.size)


def rows(lines: Iterable[Line]) -> list[list[Line]]:
    """The lines by rows from the top down, each from left to right."""
    found: list[list[Line]] = []
    for line in sorted(lines, key=lambda line: -line.baseline):
        if found and in_one_row(found[-1][0], line):
            found[-1].append(line)
        else:
            found.append([line])
    return [sorted(row, key=lambda line: line.left) for row in found]


def merged(row: Sequence[Line]) -> Line:
    """A row as one line."""
    if len(row) == 1:
        return row[0]
    first, last = row[0], row[-1]
    return Line(COLUMN.join(line.text for line in row), first.left, last.right, first.baseline, first.size)


def consecutive_rows(lines: Sequence[Line]) -> list[list[Line]]:
    """The lines in their order, those that follow each other in one row together."""
    found: list[list[Line]] = []
    for line in lines:
        if found and in_one_row(found[-1][-1], line) and line.left >= found[-1][-1].right:
            found[-1].append(line)
        else:
            found.append([line])
    return found
