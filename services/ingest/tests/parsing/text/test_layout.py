from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ingest.parsing.text.layout import Style, paragraphs
from ingest.parsing.text.lines import COLUMN, HYPHEN, Line
from ingest.parsing.text.outline import Outline


def lines(*texts: str, width: float = 400, size: float = 10) -> list[Line]:
    """Return lines below each other; a line that ends with | is short."""
    return [
        Line(text.removesuffix("|"), 50, 50 + (width / 3 if text.endswith("|") else width), 700 - 14 * number, size)
        for number, text in enumerate(texts)
    ]


def test_full_lines_are_joined() -> None:
    """A line that reaches the edge continues in the next line."""
    assert paragraphs(lines("The quick brown fox", "Jumps over the dog", "End.|")) == [
        "The quick brown fox Jumps over the dog End."
    ]


def test_short_lines_are_kept() -> None:
    """If the next word would have fitted into the line, the line break is kept."""
    assert paragraphs(lines("A full line of text here", "Street 4|", "Town|")) == [
        "A full line of text here Street 4\nTown"
    ]


def test_items_begin_lines() -> None:
    """Bullets and numbers begin a line, even after a full line."""
    assert paragraphs(lines("• one and a half", "• two and", "2. three")) == [
        "• one and a half\n• two and\n2. three"
    ]


class _Page(list[Line]):
    """Counts how often its lines are read."""

    reads = 0

    def __iter__(self) -> Iterator[Line]:
        self.reads += 1
        return super().__iter__()


def test_passes_over_a_page_do_not_grow() -> None:
    """The number of passes over the page does not grow with the number of lines."""
    reads = []
    for count in (10, 200):
        page = _Page(lines(*(f"{number} knots" for number in range(count))))
        paragraphs(page[:], page=page)
        reads.append(page.reads)
    assert reads[0] == reads[1]


def test_a_larger_gap_begins_a_paragraph() -> None:
    """A paragraph begins after a distance that is larger than usual."""
    one, two, three = lines("First line of it", "second line of it", "A new one")
    far = Line(three.text, three.left, three.right, three.baseline - 10, three.size)
    assert paragraphs([one, two, far]) == ["First line of it second line of it", "A new one"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ({"government"}, "the government is"),
        ({"govern-ment"}, "the govern-ment is"),
        ({"govern", "ment"}, "the govern-ment is"),
        ({"govern"}, "the government is"),
        (set(), "the government is"),
    ],
)
def test_divided_words(words: set[str], expected: str) -> None:
    """A divided word is joined with or without hyphen, as the word occurs elsewhere in the document."""
    assert paragraphs(lines(f"the govern{HYPHEN}", "ment is|"), words) == [expected]


def test_a_hyphen_before_a_capital_stays() -> None:
    """A hyphen before a capital letter is kept."""
    assert paragraphs(lines(f"the Anglo{HYPHEN}", "Saxon age|")) == ["the Anglo-Saxon age"]


def test_chinese_lines_are_joined_without_a_space() -> None:
    """Lines of scripts without spaces are joined without a space."""
    assert paragraphs(lines("渡轮每天早上八点", "出发。|")) == ["渡轮每天早上八点出发。"]


def test_pieces_on_one_baseline_are_cells() -> None:
    """Two pieces on one baseline become one line of cells."""
    row = [Line("Petrel", 50, 80, 700, 10), Line("420", 300, 320, 700, 10)]
    assert paragraphs(row) == [f"Petrel{COLUMN}420"]


def test_running_lines_may_count_pages() -> None:
    """A footer with page numbers from any start is left out. A heading with a number is kept."""
    pages = {
        number: [
            Line(f"Exercise {number}", 50, 200, 780, 16),
            *[
                Line(f"Words of page {number} in line {row} " + "x" * number, 50, 400, 700 - 14 * row, 10)
                for row in (1, 2, 3)
            ],
            Line(f"Review 2024, page {number + 7} of 20", 50, 200, 30, 8),
        ]
        for number in range(1, 7)
    }
    style = Style.of(pages)
    for number, page in pages.items():
        outline = Outline()
        style.fill(outline, page, number)
        [section] = outline.end_page()
        assert section.headings == (f"Exercise {number}",)
        assert section.text.count("Words of page") == 3
        assert "Review" not in section.text


@given(st.lists(st.tuples(st.text("abc .-•", min_size=1), st.floats(0, 300), st.floats(0, 800)), max_size=20))
def test_no_text_of_a_page_is_lost(pieces: list[tuple[str, float, float]]) -> None:
    """For lines in any order and place, there is no error and no letter is lost."""
    page = [
        Line(text.strip(), left, left + 5 * len(text), baseline, 10)
        for text, left, baseline in pieces
        if text.strip()
    ]
    outline = Outline()
    Style.of({1: page}).fill(outline, page, 1)
    text = "".join(section.text for section in outline.end_page())
    assert sorted(c for c in text if c in "abc") == sorted(c for line in page for c in line.text if c in "abc")
