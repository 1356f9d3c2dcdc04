"""Excel (XLSX): a page a sheet, its name as heading, one labelled line a row. Formulas give their last value."""

import datetime
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openpyxl  # type: ignore[import-untyped]  # ships no types

from ingest.parsing import containers
from ingest.parsing.content import Head, Page
from ingest.parsing.frames import Request
from ingest.parsing.office import ooxml
from ingest.parsing.refusals import TooLarge, Unreadable
from ingest.parsing.text import grids
from ingest.parsing.text.clean import flat
from ingest.parsing.text.outline import Outline

_MAIN_PARTS = (b"spreadsheetml.sheet.main+xml", b"ms-excel.sheet.macroEnabled.main+xml")
_MEDIA_TYPE = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
_DIGITS = 15
"""Of a number, as many as Excel shows."""


def recognises(path: Path, head: bytes) -> bool:
    """Return whether the main part of the package is of this kind (ECMA-376 part 1, 15.2.2; MS-OFFMACRO2)."""
    return containers.has_main_part(path, head, *_MAIN_PARTS)


def parse(request: Request) -> Iterator[Head | Page]:
    """Head and sheets of a workbook; a sheet that is hidden has no text.

    Raises:
        Unreadable: It is damaged, or has no text.
        TooLarge: It has more than ``max_pages`` sheets or ``max_characters`` characters, or unpacks to too much for
            ``memory`` bytes.
    """
    path = Path(request.path)
    ooxml.check(path, request.memory)
    with path.open("rb") as file:  # openpyxl judges paths by their suffix
        with ooxml.damaged("The workbook"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what openpyxl would not write back
            book = openpyxl.load_workbook(file, read_only=True, data_only=True, keep_links=False)
        names = book.sheetnames
        if len(names) > request.max_pages:
            raise TooLarge(f"The workbook has {len(names)} sheets; at most {request.max_pages} are read.")
        yield Head(_MEDIA_TYPE, len(names))
        empty = True
        for number, name in enumerate(names, 1):
            outline = Outline()
            with ooxml.damaged(f"Sheet {number} of the workbook"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                _fill(outline, name, book[name], request.max_characters)
            sections = outline.end_page()
            empty = empty and not sections
            yield Page(number, sections)
        if empty:
            raise Unreadable("The workbook has no text: its sheets are empty or hidden.")


def _fill(outline: Outline, name: str, sheet: Any, max_characters: int) -> None:
    if sheet.sheet_state != "visible" or not hasattr(sheet, "reset_dimensions"):  # a sheet that is a chart
        return
    sheet.reset_dimensions()  # what the file says of its size may be wrong
    rows = _rows(sheet, max_characters)
    first = next(rows, None)
    if first is None:
        return
    outline.heading(1, flat(name))
    grids.fill(outline, _chained(first, rows))


def _chained(first: list[str], rows: Iterator[list[str]]) -> Iterator[list[str]]:
    yield first
    yield from rows


def _rows(sheet: Any, max_characters: int) -> Iterator[list[str]]:
    """The rows as text, the first one with any text first."""
    characters = 0
    for cells in sheet.iter_rows():
        row = [_text(cell) for cell in cells]
        while row and not row[-1]:
            row.pop()
        characters += sum(map(len, row))
        if characters > max_characters:
            raise TooLarge(f"The document has more text than the {max_characters} characters that are read.")
        if row or characters:
            yield row


def _text(cell: Any) -> str:
    """A cell as Excel shows it, nearly."""
    value = cell.value
    match value:
        case None:
            return ""
        case bool():
            return str(value).upper()
        case int() | float():
            percent = str(cell.number_format).endswith("%")
            return f"{value * 100:.{_DIGITS}g}%" if percent else f"{value:.{_DIGITS}g}"
        case datetime.datetime() if value.time() == datetime.time():
            return value.date().isoformat()
        case datetime.datetime():
            return value.isoformat(" ", "seconds")
        case datetime.date() | datetime.time():
            return value.isoformat()
        case _:
            return flat(str(value))
