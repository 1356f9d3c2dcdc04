from hypothesis import given
from hypothesis import strategies as st
from ingest.parsing.text.outline import Outline


def test_a_heading_applies_across_pages() -> None:
    """A heading applies until the next heading of its level or of an outer level."""
    outline = Outline()
    outline.heading(1, "A")
    outline.block("one")
    assert [section.headings for section in outline.end_page()] == [("A",)]
    outline.block("two")
    outline.heading(2, "B")
    assert [(section.headings, section.text) for section in outline.end_page()] == [
        (("A",), "two"),
        (("A", "B"), "B"),
    ]


def test_a_repeated_title_is_one_heading() -> None:
    """A title that repeats the heading above it is not nested."""
    outline = Outline()
    outline.heading(1, "Handbook")
    outline.heading(2, "Handbook")
    outline.block("text")
    [section] = outline.end_page()
    assert section.headings == ("Handbook",)


@given(st.lists(st.tuples(st.integers(0, 4), st.text("ab \n", max_size=5), st.booleans())))
def test_no_text_is_lost(steps: list[tuple[int, str, bool]]) -> None:
    """The sections contain all texts in order."""
    outline = Outline()
    for level, text, tight in steps:
        if level:
            outline.heading(level, text)
        else:
            outline.block(text, tight=tight)
    found = "".join(section.text for section in outline.end_page())
    assert found.replace("\n", "") == "".join(text for _, text, _ in steps).replace("\n", "")
    assert outline.end_page() == ()
