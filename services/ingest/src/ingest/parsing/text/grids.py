"""Cells of a sheet or a CSV file → titles and labelled rows: where the header stands must be found out."""

import itertools
import re
from collections.abc import Iterable, Sequence

from ingest.parsing.text.outline import Outline
from ingest.parsing.text.tables import row as labelled
from ingest.parsing.text.tables import unused

_NUMBER = re.compile(r"[\s\d.,:/%€$£¥()+\-–]*\d[\s\d.,:/%€$£¥()+\-–Ee]*")  # noqa: RUF001  # a dash that is meant
_YEAR = re.compile(r"(?:19|20)\d\d")

Row = Sequence[str]


def fill(outline: Outline, rows: Iterable[Row]) -> None:
    """Puts a grid into an outline, row by row; each row stays together, with the names of its columns.

    The first row of several words is the header. A cell that stands alone above it is a title. After blank rows
    another table may begin, if its first row looks like a header of its own.

    Args:
        outline: Takes the blocks.
        rows: Cells as flat text, empty where there is nothing. Taken one at a time.
    """
    header: Row | None = None
    carried: set[int] = set()  # columns of the header that a row has
    begins = True  # a table, or what may be one
    tight = False
    for current, following in itertools.pairwise(itertools.chain(rows, ((),))):
        if not any(current):
            begins = True
        elif begins and (_is_title(current, following) or names_columns(current, following, header)):
            outline.block(unused(header or (), carried), whole=True)
            carried, tight = set(), False
            if _is_title(current, following):
                outline.block(labelled((), current))
                header = None
            else:
                header, begins = current, False
        else:
            outline.block(labelled(header or (), current), tight=tight and not begins, whole=True)
            carried |= _filled(current)
            header, tight, begins = header or (), True, False
    outline.block(unused(header or (), carried), tight=tight, whole=True)


def _filled(cells: Row) -> set[int]:
    return {column for column, cell in enumerate(cells) if cell}


def _is_title(cells: Row, following: Row) -> bool:
    return len(_filled(cells)) == 1 and len(_filled(following)) != 1


def names_columns(cells: Row, following: Row, before: Row | None = None) -> bool:
    """Whether a row names the columns of those below it.

    Args:
        cells: The row.
        following: The next one.
        before: The header that is in force; None before the first row.
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
    """Whether a cell is a number, an amount, a date or a time; a year by itself may name a column."""
    return bool(_NUMBER.fullmatch(cell)) and not _YEAR.fullmatch(cell)
