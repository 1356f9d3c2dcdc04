"""Columns and tables of real PDFs: the reading order, and the rows of tables."""

import itertools
from collections.abc import Callable, Sequence
from functools import partial

import pytest
from fpdf import FPDF
from ingest.parsing.content import Head, Page

Read = Callable[..., tuple[Head, list[Page]]]

TITLE = "A title that goes over the whole width of the page and is not larger than the other text of this page"
END = "A last line that goes over the whole width of the page, below the columns, and that ends the page as well."
LEFT = (
    "The ferry leaves at eight in the",
    "morning and takes an hour and a",
    "half to the outermost island, if",
    "the wind allows it. The crew is on",
    "board half an hour before, checks",
)
RIGHT = (
    "the lashings of all lorries and then",
    "reports to the bridge by telephone.",
    "Passengers without a cabin sit in the",
    "saloon, where there is coffee and a",
    "shop with newspapers of the islands.",
)
THIRD = (
    "Bicycles are put on the car deck and",
    "are tied to the rail with a strap that",
    "the crew hands out. Dogs stay with",
    "their owners and are kept on a leash",
    "in all rooms in which people eat.",
)


def drawn(places: Sequence[tuple[float, float, str]], *, size: int = 10) -> bytes:
    """Return a PDF of one page with texts at the given positions, drawn in the given order."""
    document = FPDF()
    document.add_page()
    document.set_font("Helvetica", size=size)
    for x, y, text in places:
        document.text(x, y, text)
    return bytes(document.output())


def column(x: float, lines: Sequence[str], y: float = 50) -> list[tuple[float, float, str]]:
    return [(x, y + 5 * number, line) for number, line in enumerate(lines)]


def text_of(read: Read, content: bytes) -> str:
    _, [page] = read(content, "a.pdf")
    return "\n\n".join(section.text for section in page.sections)


def by_columns(*columns: Sequence[tuple[float, float, str]]) -> list[tuple[float, float, str]]:
    return [place for lines in columns for place in lines]


def by_rows(*columns: Sequence[tuple[float, float, str]]) -> list[tuple[float, float, str]]:
    return [place for row in itertools.zip_longest(*columns) for place in row if place]


def right_first(*columns: Sequence[tuple[float, float, str]]) -> list[tuple[float, float, str]]:
    return by_columns(*reversed(columns))


@pytest.mark.parametrize("order", [by_columns, by_rows, right_first], ids=lambda order: order.__name__)
@pytest.mark.parametrize("shift", [0, 2], ids=["level", "shifted"])
def test_columns_are_read_one_after_the_other(
    read: Read, order: Callable[..., list[tuple[float, float, str]]], shift: int
) -> None:
    """Columns are read one after the other, for any drawing order and height. Sentences continue."""
    content = drawn(
        [(10, 40, TITLE), *order(column(10, LEFT), column(110, RIGHT, 50 + shift)), (10, 90, END)],
    )
    assert text_of(read, content).split("\n\n") == [TITLE, f"{' '.join(LEFT)} {' '.join(RIGHT)}", END]


@pytest.mark.parametrize("order", [by_columns, by_rows, right_first], ids=lambda order: order.__name__)
def test_three_columns(read: Read, order: Callable[..., list[tuple[float, float, str]]]) -> None:
    """Three columns are read one after the other."""
    columns = [column(x, lines) for x, lines in ((8, LEFT), (75, RIGHT), (142, THIRD))]
    paragraphs = text_of(read, drawn(order(*columns))).split("\n\n")
    assert paragraphs == [f"{' '.join(LEFT)} {' '.join(RIGHT)}", " ".join(THIRD)]


def test_a_line_across_both_columns(read: Read) -> None:
    """A line across both columns is read after the columns above it and before the columns below it."""
    places = [*by_rows(column(10, LEFT), column(110, RIGHT)), (10, 80, END)]
    places += by_rows(column(10, THIRD, 90), column(110, THIRD, 90))
    text = text_of(read, drawn(places))
    assert text.index(RIGHT[-1]) < text.index(END) < text.index(THIRD[0])


def test_lines_drawn_upwards_are_reversed(read: Read) -> None:
    """Lines that are drawn from bottom to top are read from top to bottom. Other text keeps its order."""
    assert text_of(read, drawn(list(reversed(column(10, LEFT))))) == " ".join(LEFT)


def test_short_adjacent_texts_keep_the_drawing_order(read: Read) -> None:
    """An address and a date beside it are not columns."""
    places = [*column(10, ("Ann Lee", "Quay 4", "Tolm")), *column(120, ("3 May 2025",)), (10, 80, TITLE)]
    assert text_of(read, drawn(places)).startswith("Ann Lee\nQuay 4\nTolm\n\n3 May 2025")


ROWS = (
    ("Ship", "Built in", "Remarks"),
    ("Petrel", "2009", "The flagship, with a cafeteria, a shop and a room for children on the upper deck"),
    ("Fulmar", "1994", "Freight"),
    ("Dunlin", "", "No car deck"),
)
LABELLED = [
    f"Ship: Petrel; Built in: 2009; Remarks: {ROWS[1][2]}",
    "Ship: Fulmar; Built in: 1994; Remarks: Freight",
    "Ship: Dunlin; Remarks: No car deck",
]


def test_rows_of_a_table_have_their_header(read: Read) -> None:
    """Each row becomes a line, even if its cells have several lines. Surrounding paragraphs are not included."""
    document = FPDF()
    document.add_page()
    document.set_font("Helvetica", size=10)
    document.multi_cell(0, 5, f"{END} These are the ships:", new_x="LMARGIN", new_y="NEXT")
    with document.table(col_widths=(20, 20, 60), line_height=5) as table:
        for row in ROWS:
            table.row(row)
    document.multi_cell(0, 5, "the paragraph below begins with a small letter. " * 4, new_x="LMARGIN", new_y="NEXT")
    paragraphs = text_of(read, bytes(document.output())).split("\n\n")
    assert paragraphs[0] == f"{END} These are the ships:"
    assert paragraphs[1].split("\n") == LABELLED
    assert paragraphs[2] == ("the paragraph below begins with a small letter. " * 4).strip()


CELLS = (
    ("Ship", "Built", "Passengers"),
    ("Petrel", "2009", "420"),
    ("Fulmar", "1994", "300"),
    ("Dunlin", "2012", "80"),
)


@pytest.mark.parametrize("order", [by_columns, by_rows], ids=lambda order: order.__name__)
def test_a_table_is_read_by_rows(read: Read, order: Callable[..., list[tuple[float, float, str]]]) -> None:
    """A table that is drawn by columns is read by rows. Its last row and the next paragraph remain separate."""
    columns = [column(10 + 50 * number, [row[number] for row in CELLS]) for number in range(3)]
    text = text_of(read, drawn([*order(*columns), (10, 70, "Fares are in another document.")]))
    assert text.split("\n\n") == [
        "Ship: Petrel; Built: 2009; Passengers: 420\nShip: Fulmar; Built: 1994; Passengers: 300\n"
        "Ship: Dunlin; Built: 2012; Passengers: 80",
        "Fares are in another document.",
    ]


def test_a_table_without_a_header_keeps_its_cells_apart(read: Read) -> None:
    """The first row of a table with two columns of words is not a header."""
    places = by_rows(column(10, ("Captain", "Mate", "Engineer")), column(60, ("Ann Lee", "Bob Fox", "Eve Orr")))
    assert text_of(read, drawn(places)) == "Captain | Ann Lee\nMate | Bob Fox\nEngineer | Eve Orr"


def test_numbers_at_the_right_belong_to_their_columns(read: Read) -> None:
    """A column is as wide as its widest cell, so right-aligned numbers belong to their column."""
    document = FPDF()
    document.add_page()
    document.set_font("Helvetica", size=10)
    cell = partial(document.cell, h=6)
    for name, single, double in (
        ("Ticket", "One way", "Return"),
        ("Adult", "18.40", "36.80"),
        ("Dog", "3.00", "6"),
    ):
        cell(60, text=name)
        cell(40, text=single, align="R")
        cell(40, text=double, align="R", new_x="LMARGIN", new_y="NEXT")
    assert text_of(read, bytes(document.output())) == (
        "Ticket: Adult; One way: 18.40; Return: 36.80\nTicket: Dog; One way: 3.00; Return: 6"
    )
