import pytest
from hypothesis import given
from hypothesis import strategies as st
from ingest.parsing.text import grids
from ingest.parsing.text.outline import Outline


def filled(rows: list[list[str]]) -> str:
    outline = Outline()
    grids.fill(outline, rows)
    return "\n---\n".join(section.text for section in outline.end_page())


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ("Name,Seats/Petrel,420", "Name: Petrel; Seats: 420"),
        ("Report//Name,Seats/Petrel,420", "Report\n\nName: Petrel; Seats: 420"),
        ("Region,2023,2024/North,1,2", "Region: North; 2023: 1; 2024: 2"),
        ("Petrel,420/Fulmar,300", "Petrel | 420\nFulmar | 300"),
        ("Anna/Bob", "Anna\nBob"),
        ("Name:,Anna/City:,Oban", "Name: | Anna\nCity: | Oban"),
        ("a,b/x,1//c,d,e/y,2,3", "a: x; b: 1\n\nc: y; d: 2; e: 3"),
        ("a,b/x,y//v,w/p,q", "a: x; b: y\n\na: v; b: w\na: p; b: q"),
        ("a,b/x,1//Other/c,d/y,2", "a: x; b: 1\n\nOther\n\nc: y; d: 2"),
        ("a,b,c/x,1,", "a: x; b: 1\nc"),
        ("a,b", "a | b"),
        ("a,b//", "a | b"),
        ("a,b/x,1,extra", "a: x; b: 1; extra"),
        ("a,a/x,y", "a | a\nx | y"),
        ("", ""),
    ],
)
def test_header_detection(rows: str, expected: str) -> None:
    """Rows have the names of the header above them, if it exists. Titles are separate lines."""
    assert filled([line.split(",") for line in rows.split("/")]) == expected


cells = st.sampled_from(["a", "b", "7", "2024", "c:", "x y"])
blank, full = st.just(["", "", ""]), st.lists(cells, min_size=3, max_size=3)


@given(st.lists(blank | full | st.tuples(cells).map(list), max_size=8))
def test_no_cell_is_lost(rows: list[list[str]]) -> None:
    """For any grid, the text contains each cell."""
    text = filled(rows)
    for word in {word for row in rows for cell in row for word in cell.strip(":").split()}:
        assert word in text
