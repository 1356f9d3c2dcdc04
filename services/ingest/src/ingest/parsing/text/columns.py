"""Determines the reading order of the lines of a page.

A page may draw its lines in any order, but contains the position of each line. Columns of running text are read one
after the other, after the lines above the columns and before the lines below them. Other lines are read in the
order in which the page draws them, with two exceptions: lines drawn upwards within a column, and tables drawn
column by column.
"""

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from ingest.parsing.text.lines import Line, in_one_row, rows

_MIN_COLUMN_LINES = 3
"""Minimum number of lines of a column."""
_GUTTER = 0.8
"""Minimum width of the gap between two columns, as a multiple of the font size."""
_RUNNING_LETTERS = 18
"""Minimum number of letters of a typical line of running text. Most cells of tables have fewer letters."""
_MAX_CELL_LETTERS = 40
"""Maximum number of letters of a typical cell of a table."""
_FILLED = 0.6
"""Minimum fraction of the column's width that a typical line of running text fills."""
_MAX_DEPTH = 12
"""Maximum depth of columns within columns."""
_MAX_PAGE_LINES = 2000
"""Maximum number of lines of a page that is searched for columns, because the search takes quadratic time."""


@dataclass(frozen=True, slots=True)
class _Split:
    """Two adjacent columns with the lines above and below them, each in drawn order."""

    above: list[Line]
    left: list[Line]
    right: list[Line]
    below: list[Line]


def in_reading_order(lines: Sequence[Line]) -> list[Line]:
    """Return the lines of a page in reading order."""
    return _ordered(list(lines), 0) if len(lines) <= _MAX_PAGE_LINES else list(lines)


def _ordered(lines: list[Line], depth: int) -> list[Line]:
    split = _split(lines) if depth < _MAX_DEPTH else None
    if split is None:
        return _reordered(lines)
    parts = (split.above, split.left, split.right, split.below)
    return [line for part in parts for line in _ordered(part, depth + 1)]


def _split(lines: Sequence[Line]) -> _Split | None:
    """Return the split into the two columns with the most lines; None without columns of running text."""
    best: tuple[list[Line], list[Line]] | None = None
    most_lines = 0
    for edge in _left_edges(lines):
        for run in _runs(lines, edge):
            left = [line for line in run if line.right <= edge]
            right = [line for line in run if line.left >= edge - 0.5 * line.size]
            if len(run) > most_lines and _are_columns(left, right):
                best, most_lines = (left, right), len(run)
    if best is None:
        return None
    left, right = best
    inside = {id(line) for line in (*left, *right)}
    top = max(line.baseline for line in (*left, *right))
    outside = [line for line in lines if id(line) not in inside]
    above = [line for line in outside if line.baseline > top]
    return _Split(above, left, right, [line for line in outside if line.baseline <= top])


def _left_edges(lines: Sequence[Line]) -> list[float]:
    """Return the left edges that several lines share, except the leftmost: the possible edges of a right column."""
    edges: list[list[float]] = []
    for line in sorted(lines, key=lambda line: line.left):
        if edges and line.left - edges[-1][-1] < 0.5 * line.size:
            edges[-1].append(line.left)
        else:
            edges.append([line.left])
    return [shared[0] for shared in edges[1:] if len(shared) >= _MIN_COLUMN_LINES]


def _runs(lines: Sequence[Line], edge: float) -> list[list[Line]]:
    """Return runs of lines that do not cross an edge, from top to bottom. Each run is in drawn order."""
    crossing = sorted(
        (line.baseline for line in lines if line.left < edge - 0.5 * line.size and line.right > edge), reverse=True
    )
    runs: list[list[Line]] = [[] for _ in range(len(crossing) + 1)]
    for line in lines:
        if line.right <= edge or line.left >= edge - 0.5 * line.size:
            runs[sum(line.baseline < height for height in crossing)].append(line)
    return runs


def _are_columns(left: Sequence[Line], right: Sequence[Line]) -> bool:
    if min(len(left), len(right)) < _MIN_COLUMN_LINES:
        return False
    if min(line.left for line in right) - max(line.right for line in left) < _GUTTER * left[0].size:
        return False
    are_level = min(left[0].baseline, right[0].baseline) >= max(left[-1].baseline, right[-1].baseline)
    return are_level and _is_running_text(left) and _is_running_text(right)


def _is_running_text(column: Sequence[Line]) -> bool:
    """Return whether the lines of a column are long enough for running text. The column may contain columns."""
    widest: dict[int, float] = {}
    for line in column:
        edge = round(line.left / line.size)
        widest[edge] = max(widest.get(edge, 0.0), line.right - line.left)
    filled = [(line.right - line.left) / (widest[round(line.left / line.size)] or 1.0) for line in column]
    letters = statistics.median(len(line.text) for line in column)
    return letters >= _RUNNING_LETTERS and statistics.median(filled) >= _FILLED


def _reordered(lines: Sequence[Line]) -> list[Line]:
    """Return the lines in drawn order. Lines drawn upwards and tables drawn by columns are ordered by rows."""
    done: list[Line] = []
    start = 0
    for first, last in _upward(lines):
        part = lines[first : last + 1]
        done += lines[start:first]
        done += [line for row in rows(part) for line in row] if _is_misdrawn(part) or _is_grid(part) else part
        start = last + 1
    return done + list(lines[start:])


def _upward(lines: Sequence[Line]) -> list[tuple[int, int]]:
    """Return disjoint ranges, in drawn order, in which a line is drawn after a lower one."""
    found: list[tuple[int, int]] = []
    lowest: list[int] = []  # indexes of lines that are not above any line drawn before
    for index, line in enumerate(lines):
        lower = next((low for low in lowest if _is_above(line, lines[low])), None)
        if lower is None:
            lowest.append(index)
            continue
        first = lower
        while found and found[-1][1] >= first - 1:
            first = min(first, found.pop()[0])
        found.append((first, index))
    return found


def _is_above(line: Line, other: Line) -> bool:
    return line.baseline > other.baseline and not in_one_row(line, other)


def _is_misdrawn(lines: Sequence[Line]) -> bool:
    """Return whether a line is drawn after the line below it in the same column."""
    return any(
        _is_above(line, before) and line.left < before.right and before.left < line.right
        for before, line in itertools.pairwise(lines)
    )


def _is_grid(lines: Sequence[Line]) -> bool:
    """Return whether lines are short, and at least half of them have a neighbour in their row."""
    beside = sum(len(row) for row in rows(lines) if len(row) > 1)
    return 2 * beside >= len(lines) and statistics.median(len(line.text) for line in lines) < _MAX_CELL_LETTERS
