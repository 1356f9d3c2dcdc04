from typing import Any

import pptx
import pytest
from ingest.parsing.content import Head, Page, Section
from ingest.parsing.refusals import TooLarge, Unreadable
from pptx.chart.data import CategoryChartData
from pptx.enum.chart import XL_CHART_TYPE
from pptx.util import Inches

from ..conftest import Read, saved

BOX = (Inches(1), Inches(2), Inches(4), Inches(1))


def slide(deck: Any, title: str, *lines: str) -> Any:
    added = deck.slides.add_slide(deck.slide_layouts[1 if lines else 5])
    added.shapes.title.text = title
    if lines:
        frame = added.placeholders[1].text_frame
        frame.text = lines[0]
        for line in lines[1:]:
            paragraph = frame.add_paragraph()
            paragraph.text, paragraph.level = line, 1
    return added


def test_a_slide_is_a_page(read: Read) -> None:
    """Each slide is a page with its number, the title, the lines by level, and the speaker's notes."""
    deck = pptx.Presentation()
    slide(deck, "Timetable", "Ferries leave at eight.", "On Sundays\vat nine.")
    slide(deck, "Weather", "Wind.").notes_slide.notes_text_frame.text = "Mention winter."
    head, pages = read(saved(deck), "a.pptx")
    assert head == Head("application/vnd.openxmlformats-officedocument.presentationml.presentation", 2)
    assert pages == [
        Page(1, (Section(("Timetable",), "Timetable\n\n- Ferries leave at eight.\n  - On Sundays\nat nine."),)),
        Page(2, (Section(("Weather",), "Weather\n\nWind.\n\nNotes: Mention winter."),)),
    ]


def test_boxes_come_in_reading_order(read: Read) -> None:
    """Columns are read one after the other, a wide box between those above and below it, for any drawing order."""
    deck = pptx.Presentation()
    shapes = slide(deck, "Fleet").shapes
    for text, left, top, width in (
        ("Right, below.", 5, 3, 3),
        ("Last.", 1, 5, 8),
        ("Left, below.", 1, 3.1, 3),
        ("Right.", 5, 2, 3),
        ("Left.", 1, 2.2, 3),
    ):
        box = (Inches(left), Inches(top), Inches(width), Inches(0.5))
        shapes.add_textbox(*box).text_frame.text = text
    _, [page] = read(saved(deck), "a.pptx")
    assert page.sections[0].text.split("\n\n") == [
        "Fleet",
        "Left.",
        "Left, below.",
        "Right.",
        "Right, below.",
        "Last.",
    ]


def test_tables_charts_and_groups(read: Read) -> None:
    """Rows and categories are lines with labels, which are not split. Grouped shapes are read."""
    deck = pptx.Presentation()
    shapes = slide(deck, "Fleet").shapes
    table = shapes.add_table(4, 3, *BOX).table
    for row, texts in enumerate((("Ship", "Seats", "x"), ("Petrel", "420", ""), ("", "300", ""), ("All", "", "y"))):
        for column, text in enumerate(texts):
            table.cell(row, column).text = text
    table.cell(1, 0).merge(table.cell(2, 0))
    table.cell(3, 0).merge(table.cell(3, 1))
    data: Any = CategoryChartData()  # type: ignore[no-untyped-call]  # has no types
    data.categories = ["May", "June"]
    data.add_series("Guests", (1200, 1500.5))
    data.add_series("Cars", (100, None))
    shapes.add_chart(XL_CHART_TYPE.COLUMN_CLUSTERED, *BOX, data)
    shapes.add_group_shape().shapes.add_textbox(*BOX).text_frame.text = "Grouped."
    _, [page] = read(saved(deck), "a.pptx")
    [section] = page.sections
    rows = ["Ship: Petrel; Seats: 420", "Ship: Petrel; Seats: 300", "Ship: All; x: y"]
    categories = ["May; Guests: 1200; Cars: 100", "June; Guests: 1500.5"]
    assert section.text == "\n\n".join(["Fleet", "\n".join(rows), "\n".join(categories), "Grouped."])
    assert [section.text[start:end] for start, end in section.whole] == rows + categories


def test_hidden_slides_have_no_text(read: Read) -> None:
    """A hidden slide counts as a page but is not read. A presentation with only hidden slides has no text."""
    deck = pptx.Presentation()
    slide(deck, "Secret").element.set("show", "0")
    with pytest.raises(Unreadable, match="hidden"):
        read(saved(deck), "a.pptx")
    slide(deck, "Shown")
    _, pages = read(saved(deck), "a.pptx")
    assert [(page.number, bool(page.sections)) for page in pages] == [(1, False), (2, True)]


def test_limits_and_language(read: Read) -> None:
    """A presentation with too many slides is refused. Its language is that of the first text that declares one."""
    deck = pptx.Presentation()
    for number in range(3):
        run = slide(deck, f"Slide {number}", "x").placeholders[1].text_frame.paragraphs[0].runs[0]
        run._r.get_or_add_rPr().set("lang", "de-AT")
    with pytest.raises(TooLarge, match="3 slides"):
        read(saved(deck), "a.pptx", max_pages=2)
    head, _ = read(saved(deck), "a.pptx")
    assert head.language == "de-AT"
