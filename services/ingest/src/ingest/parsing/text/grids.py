"""Turns the cells of a sheet or a CSV file into titles and rows with column names. Detects the header."""

import itertools
import re
from collections.abc import Iterable, Sequence

from ingest.parsing.text import tables
from ingest.parsing.text.outline import Outline

_NUMBER = re.compile(r"[\s\d.,:/%€$£¥()+\-–]*\d[\s\d.,:/%€$£¥()+\-–Ee]*")  # noqa: RUF001  # the dash is intended
_YEAR = re.compile(r"(?:19|20)\d\d")

Row = Sequence[str]


def fill(outline: Outline, rows: Iterable[Row]) -> None:
    """Add a grid to an outline, row by row, with the names of the columns in each row.

    At the start of a table, a row with a single non-blank cell is a title, unless the next row also has only one
    non-blank cell. The first row, or the first one after a title, is the header if it can name the columns (see
    `names_columns`). After blank rows, another table begins if the next row is a title or a header. A line after
    the last row of a table names its columns without values.

    Args:
        outline: The outline.
        rows: The rows. The text of a cell has no line breaks, and is empty for a blank cell.
    """
    header: Row | None = None
    used: set[int] = set()  # columns of the header that have a value in some row
    may_begin = True  # whether the current row may begin a table
    tight = False
    for current, following in itertools.pairwise(itertools.chain(rows, ((),))):
        if not any(current):
            may_begin = True
        elif may_begin and (_is_title(current, following) or names_columns(current, following, header)):
            outline.block(tables.empty_columns(header or (), used), whole=True)
            used, tight = set(), False
            if _is_title(current, following):
                outline.block(tables.row((), current))
                header = None
            else:
                header, may_begin = current, False
        else:
            outline.block(tables.row(header or (), current), tight=tight and not may_begin, whole=True)
            used |= _filled(current)
            header, tight, may_begin = header or (), True, False
    outline.block(tables.empty_columns(header or (), used), tight=tight, whole=True)


def _filled(cells: Row) -> set[int]:
    return {column for column, cell in enumerate(cells) if cell}


def _is_title(cells: Row, following: Row) -> bool:
    return len(_filled(cells)) == 1 and len(_filled(following)) != 1


def names_columns(cells: Row, following: Row, before: Row | None = None) -> bool:
    """Return whether a row is the header of the rows below it.

    A header has at least two texts. They are all different, none ends with a colon, and none is an amount, a date,
    a time, or a number other than a year. At least half of the values in the next row are below a text of the
    header. Within a table, a new header also has texts in other columns than the current one, or a number in the
    next row.

    Args:
        cells: The row.
        following: The next row.
        before: The header of the current table, empty if it has no header; None if no table has begun.
    """
    filled = [cell for cell in cells if cell]
    if len(filled) < 2 or len(set(filled)) < len(filled) or any(cell.endswith(":") for cell in filled):
        return False
    if any(_is_number(cell) for cell in filled) or not any(following):
        return False
    below = _filled(following)
    if len(_filled(cells) & below) * 2 < len(below):
        return False
    if before is None:
        return True
    return _filled(cells) != _filled(before) or any(_is_number(cell) for cell in following if cell)


def _is_number(cell: str) -> bool:
    """Return whether a cell is a number, an amount, a date or a time, but not a year, which may name a column."""
    return bool(_NUMBER.fullmatch(cell)) and not _YEAR.fullmatch(cell)
