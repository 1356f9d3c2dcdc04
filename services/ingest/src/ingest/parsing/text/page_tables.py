"""Detects tables on a page: rows of cells that are aligned in columns."""

import functools
import itertools
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ingest.parsing.text import grids, tables
from ingest.parsing.text.lines import HYPHEN, Line, consecutive_rows, merged
from ingest.parsing.text.outline import Outline

_MAX_ROW_DISTANCE = 3.5
"""Maximum distance between two rows of a table, as a multiple of the font size."""
_MAX_CELL_DISTANCE = 2.5
"""Maximum distance between a row with a single cell and the row above it, as a multiple of the font size."""
_MAX_LINE_DISTANCE = 1.7
"""Maximum distance between two lines of a cell, as a multiple of the font size. Also the maximum distance between a
row with a single cell in the first column and the row above it. A row that is farther away is a paragraph below the
table.
"""
_MIN_ROW_GAP_RATIO = 1.08
"""Minimum ratio of the distance between two rows to the smallest distance between two lines of a cell, in a table
whose rows are recognised by the gaps between them.
"""
_MAX_LINE_GAP_RATIO = 0.85
"""Maximum ratio of the distance between lines of a cell to the distance between rows."""
_MIN_COUNT = 2
"""Minimum number of rows, and of columns, of a table."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells, one cell for each column.

    Attributes:
        rows: The texts of the cells; empty for missing cells.
        has_header: Whether the first row has the names of the columns.
    """

    rows: Sequence[Sequence[str]]
    has_header: bool

    def fill(self, outline: Outline) -> None:
        """Add the rows to an outline, with the names of the columns if there is a header."""
        if self.has_header:
            header, *body = self.rows
            outline.rows(tables.rows(header, body))
        else:
            outline.rows(tables.row((), cells) for cells in self.rows)


def with_tables(lines: Sequence[Line]) -> Iterator[Line | Table]:
    """Yield the lines in the given order, with each table in place of the table's lines.

    Outside tables, consecutive lines of the same row are merged into one line.
    """
    run: list[list[Line]] = []
    for row in consecutive_rows(lines):
        if run and not _may_continue(run, row):
            yield from _table_or_lines(run)
            run = []
        run.append(row)
    yield from _table_or_lines(run)


def _may_continue(run: Sequence[Sequence[Line]], row: Sequence[Line]) -> bool:
    """Return whether a row may continue the table that the consecutive rows of ``run`` may form."""
    above = run[-1]
    distance = above[0].baseline - row[0].baseline
    if not 0 < distance <= _MAX_ROW_DISTANCE * row[0].size:
        return False
    if len(run) == 1 and len(above) == 1:
        return False
    columns = _columns(run)
    columns_of_row = [_column_of(columns, line) for line in row]
    if None in columns_of_row:
        # A row may have cells in new columns if at least two of its cells are in known columns.
        return len(row) > 1 and len([column for column in columns_of_row if column is not None]) > 1
    limit = _MAX_LINE_DISTANCE if columns_of_row[0] == 0 else _MAX_CELL_DISTANCE
    return len(row) > 1 or distance <= limit * row[0].size


def _table_or_lines(rows: Sequence[Sequence[Line]]) -> Iterator[Line | Table]:
    """Yield the table that consecutive rows form, then the lines below it. Without a table, yield only lines."""
    run = _with_split_header(rows) if rows else ()
    last = max((number for number, row in enumerate(run) if len(row) > 1), default=-1)
    columns = _columns(run[: last + 1]) if sum(len(row) > 1 for row in run) >= _MIN_COUNT else []
    # Single cells below the last row with several cells continue this row. But a single line that is in the first
    # column, or not in exactly one column, begins a paragraph.
    end = next((at for at in range(last + 1, len(run)) if _column_of(columns, run[at][0]) in (0, None)), len(run))
    if len(columns) < _MIN_COUNT:
        yield from map(merged, rows)
        return
    cells = _cells(columns, run[:end])
    yield Table(cells, _has_header(run[:end], cells))
    yield from map(merged, run[end:])


def _cells(columns: Sequence[tuple[float, float]], run: Sequence[Sequence[Line]]) -> list[list[str]]:
    """Return the cells of the table's rows, with the lines of each cell joined.

    A row of the table may consist of several rows of lines in ``run``. Its first cell may begin below its other
    cells.
    """
    texts = [_texts(columns, row) for row in run]
    bounds = _row_bounds(run, texts)
    if bounds is not None:
        return [functools.reduce(_joined, texts[first:last]) for first, last in itertools.pairwise(bounds)]
    cells: list[list[str]] = []
    above: list[str] | None = None  # lines of the table's next row, above its first cell
    for number, row in enumerate(texts):
        if row[0] or (len(run[number]) > 1 and _distance(run, number - 1) > _MAX_LINE_GAP_RATIO * _row_pitch(run)):
            # A cell in the first column begins a row of the table. So do several cells whose distance
            # from the lines above is at least about the distance between rows.
            cells.append(row if above is None else _joined(above, row))
            above = None
        elif not cells or (
            _distance(run, number) < _distance(run, number - 1) and _are_disjoint(row, texts[number + 1])
        ):
            # The lines are closer to the row below, and in other columns.
            above = row if above is None else _joined(above, row)
        else:
            cells[-1] = _joined(cells[-1], row)
    return cells if above is None else [*cells, above]


def _row_bounds(run: Sequence[Sequence[Line]], texts: Sequence[Sequence[str]]) -> list[int] | None:
    """Return the indexes in ``run`` at which the table's rows begin, and the length of ``run``.

    Returns None if the gaps between the rows of lines do not separate rows with multi-line cells.
    """
    baselines: dict[int, float] = {}
    leading = float("inf")
    for row, cells in zip(run, texts, strict=True):
        for column, text in enumerate(cells):
            if text:
                leading = min(leading, baselines.get(column, float("inf")) - row[0].baseline)
                baselines[column] = row[0].baseline
    bounds = [
        0,
        *(number for number in range(1, len(run)) if _distance(run, number - 1) > _MIN_ROW_GAP_RATIO * leading),
        len(run),
    ]
    if leading > _MAX_LINE_DISTANCE * run[0][0].size or len(bounds) < 3:
        return None
    for first, last in itertools.pairwise(bounds):
        for one, other in itertools.combinations(texts[first:last], 2):
            if (
                one[0]
                and other[0]
                and any(_has_digit(a) and _has_digit(b) for a, b in zip(one, other, strict=True))
            ):
                return None  # the gaps separate groups of single-line rows
    return bounds


def _are_disjoint(row: Sequence[str], following: Sequence[str]) -> bool:
    """Return whether each column has a value in at most one of the rows."""
    return not any(one and other for one, other in zip(row, following, strict=True))


def _has_digit(text: str) -> bool:
    return any(map(str.isdigit, text))


def _distance(run: Sequence[Sequence[Line]], number: int) -> float:
    """Return the distance from a row down to the next one; infinite if one of them does not exist."""
    if not 0 <= number < len(run) - 1:
        return float("inf")
    return run[number][0].baseline - run[number + 1][0].baseline


def _joined(cells: Sequence[str], more: Sequence[str]) -> list[str]:
    return [f"{text} {rest}".strip() for text, rest in zip(cells, more, strict=True)]


def _columns(run: Sequence[Sequence[Line]]) -> list[tuple[float, float]]:
    """Return the left and right edges of the columns; overlapping cells belong to one column.

    Rows with at most half of the maximum number of cells are ignored, because their cells may span several columns.
    """
    max_cells = max(len(row) for row in run)
    lines = [line for row in run if 2 * len(row) > max_cells for line in row]
    edges: list[tuple[float, float]] = []
    for line in sorted(lines, key=lambda line: line.left):
        if edges and line.left < edges[-1][1]:
            edges[-1] = (edges[-1][0], max(edges[-1][1], line.right))
        else:
            edges.append((line.left, line.right))
    return edges


def _column_of(columns: Sequence[tuple[float, float]], line: Line) -> int | None:
    """Return the column of a line, or None if it is in no column or in several."""
    matches = [column for column, (left, right) in enumerate(columns) if line.left < right and left < line.right]
    return matches[0] if len(matches) == 1 else None


def _with_split_header(run: Sequence[Sequence[Line]]) -> Sequence[Sequence[Line]]:
    """Return the rows. Split the first one at narrow gaps if it then has as many cells as the longest other row."""
    header = [part for line in run[0] for part in line.parts or (line,)]
    return [header, *run[1:]] if len(run[0]) < len(header) == max(map(len, run[1:]), default=0) else run


def _texts(columns: Sequence[tuple[float, float]], row: Sequence[Line]) -> list[str]:
    texts = [""] * len(columns)
    for line in row:
        overlaps = [min(line.right, right) - max(line.left, left) for left, right in columns]
        column = overlaps.index(max(overlaps))
        texts[column] = f"{texts[column]} {line.text.replace(HYPHEN, '-')}".strip()
    return texts


def _row_pitch(run: Sequence[Sequence[Line]]) -> float:
    """Return the median distance between rows that have a cell in the first column."""
    left = min(row[0].left for row in run)
    first_cells = [row[0] for row in run if row[0].left < left + row[0].size]
    distances = [one.baseline - other.baseline for one, other in itertools.pairwise(first_cells)]
    return statistics.median(distances) if distances else 0.0


def _has_header(run: Sequence[Sequence[Line]], cells: Sequence[Sequence[str]]) -> bool:
    """Return whether the first row is a header.

    A header can name the columns (see `grids.names_columns`). In addition, at least one of these conditions holds:
    the header is bold and some other row is not; a column below the header has a digit in each non-empty cell; the
    table has at least three rows and three columns.
    """
    if len(cells) < _MIN_COUNT or not grids.names_columns(cells[0], cells[1]):
        return False
    bold = [all(line.is_bold for line in row) for row in run]
    if bold[0] and not all(bold):
        return True
    body = [[cell for cell in column if cell] for column in zip(*cells[1:], strict=True)]
    numeric = any(column and all(map(_has_digit, column)) for column in body)
    return numeric or min(len(cells), len(cells[0])) > _MIN_COUNT
