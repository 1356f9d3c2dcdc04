"""Excel (XLSX): a page for each sheet, with the sheet's name as heading. Each row is a line with column names.

A cell with a formula contains its last calculated value.
"""

import datetime
import itertools
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
"""Significant digits of a number, as in Excel."""


def recognises(path: Path, head: bytes) -> bool:
    """Return whether the main part of a package is a workbook (ECMA-376 part 1, 12.3.23; MS-OFFMACRO2)."""
    return containers.has_main_part(path, head, *_MAIN_PARTS)


def parse(request: Request) -> Iterator[Head | Page]:
    """Yield the head of a workbook and a page for each sheet. The page of a hidden sheet is empty.

    Raises:
        Unreadable: The workbook is damaged, or has no text.
        Unsupported: The workbook is Strict Open XML; see `ooxml.check`.
        TooLarge: The workbook has more than ``max_pages`` sheets or ``max_characters`` characters, or is too large
            for ``memory`` when unpacked.
    """
    path = Path(request.path)
    ooxml.check(path, request.memory)
    with path.open("rb") as file:  # for a path, openpyxl would check the suffix
        with ooxml.damage_is_unreadable("The workbook"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about content that openpyxl would not write back
            book = openpyxl.load_workbook(file, read_only=True, data_only=True, keep_links=False)
        names = book.sheetnames
        if len(names) > request.max_pages:
            raise TooLarge(f"The workbook has {len(names)} sheets. The limit is {request.max_pages} sheets.")
        yield Head(_MEDIA_TYPE, len(names))
        is_empty = True
        for number, name in enumerate(names, 1):
            outline = Outline()
            with ooxml.damage_is_unreadable(f"Sheet {number} of the workbook"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                _fill(outline, name, book[name], request.max_characters)
            sections = outline.end_page()
            is_empty = is_empty and not sections
            yield Page(number, sections)
        if is_empty:
            raise Unreadable("The workbook has no text: its sheets are empty or hidden.")


def _fill(outline: Outline, name: str, sheet: Any, max_characters: int) -> None:
    if sheet.sheet_state != "visible" or not hasattr(sheet, "reset_dimensions"):  # a chart sheet
        return
    sheet.reset_dimensions()  # the dimensions in the file may be wrong
    rows = _rows(sheet, max_characters)
    first = next(rows, None)
    if first is None:
        return
    outline.heading(1, flat(name))
    grids.fill(outline, itertools.chain([first], rows))


def _rows(sheet: Any, max_characters: int) -> Iterator[list[str]]:
    """Yield the rows as text, without blank rows at the top."""
    characters = 0
    for cells in sheet.iter_rows():
        row = [_text(cell) for cell in cells]
        while row and not row[-1]:
            row.pop()
        characters += sum(map(len, row))
        if characters > max_characters:
            raise TooLarge.characters(max_characters)
        if row or characters:
            yield row


def _text(cell: Any) -> str:
    """Return a cell's text, approximately as Excel shows it."""
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
