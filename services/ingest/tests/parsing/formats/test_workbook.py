import datetime
from collections.abc import Callable

import openpyxl  # type: ignore[import-untyped]  # ships no types
import pytest
from ingest.parsing.content import Head
from ingest.parsing.refusals import TooLarge, Unreadable

from ..conftest import Read, saved

MakeXlsx = Callable[..., bytes]


def test_a_sheet_is_a_page(read: Read, make_xlsx: MakeXlsx) -> None:
    """Each sheet is a page with its number and name. Each row is a line that is not split."""
    content = make_xlsx(
        Fleet=[["Register 2026"], [], ["Vessel", "Seats"], ["Petrel", 420], ["Fulmar", 300]],
        Empty=[],
        Berths=[["Berth", "Depth"], ["North", 7.5]],
    )
    head, pages = read(content, "a.xlsx")
    assert head == Head("application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", 3)
    assert [page.number for page in pages] == [1, 2, 3]
    [fleet] = pages[0].sections
    assert fleet.headings == ("Fleet",)
    assert fleet.text == "Fleet\n\nRegister 2026\n\nVessel: Petrel; Seats: 420\nVessel: Fulmar; Seats: 300"
    assert [fleet.text[start:end] for start, end in fleet.whole] == fleet.text.split("\n")[-2:]
    assert pages[1].sections == ()
    assert pages[2].sections[0].text == "Berths\n\nBerth: North; Depth: 7.5"


def test_cells_are_formatted_as_in_excel(read: Read) -> None:
    """Dates, times, percentages, booleans and long fractions are written as Excel shows them."""
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.append(
        [0.1 + 0.2, 12_000_000, True, 0.15, datetime.datetime(2026, 3, 1), datetime.datetime(2026, 3, 1, 8, 30),
         datetime.time(8, 30), "a\nb", "=1+1"]
    )  # fmt: skip
    sheet.cell(1, 4).number_format = "0%"
    _, [page] = read(saved(book), "a.xlsx")
    assert (
        page.sections[0].text
        == "Sheet\n\n0.3 | 12000000 | TRUE | 15% | 2026-03-01 | 2026-03-01 08:30:00 | 08:30:00 | a b"
    )


def test_a_distant_cell_creates_no_large_sheet(read: Read) -> None:
    """A single cell at the last position does not cause 17 billion cells to be read."""
    book = openpyxl.Workbook()
    book.active["A1"], book.active["XFD1048576"] = "near", "far"
    _, [page] = read(saved(book), "a.xlsx")
    assert page.sections[0].text == "Sheet\n\nnear\n\nfar"


def test_hidden_sheets_and_limits(read: Read, make_xlsx: MakeXlsx) -> None:
    """A hidden sheet is not read. Too many sheets, or too much text, are refused."""
    book = openpyxl.Workbook()
    book.active.append(["secret"])
    book.create_sheet("Shown").append(["word"])
    book.worksheets[0].sheet_state = "hidden"
    _, pages = read(saved(book), "a.xlsx")
    assert [(page.number, bool(page.sections)) for page in pages] == [(1, False), (2, True)]
    with pytest.raises(Unreadable, match="no text"):
        read(make_xlsx(Empty=[[]]), "a.xlsx")
    with pytest.raises(TooLarge, match="2 sheets"):
        read(saved(book), "a.xlsx", max_pages=1)
    with pytest.raises(TooLarge, match="too much text"):
        read(make_xlsx(Much=[["word " * 10]] * 30), "a.xlsx", max_characters=1000)
