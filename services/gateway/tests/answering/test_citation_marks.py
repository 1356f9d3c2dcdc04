import itertools

from gateway.answering.citation_marks import MarkScanner, spans_of
from hypothesis import example, given
from hypothesis import strategies as st

NAMES = ["a.pdf#page=2", "a.pdf", "a.pdf]x", "[b", "é"]
PARTS = [*(f"[{name}]" for name in NAMES), *NAMES, "[", "]", "a", " ", "[a.pdf", "x]"]


@given(st.lists(st.sampled_from(PARTS), max_size=12).map("".join), st.data())
@example("[a.pdf]", None)
def test_marks_are_found_with_every_split(text: str, data: st.DataObject | None) -> None:
    """The same marks are found with every split of the text, and no text is lost."""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8))) if data else list(range(len(text)))
    scanner = MarkScanner(NAMES)
    found: list[tuple[str, bool]] = []
    for begin, end in itertools.pairwise([0, *cuts, len(text)]):
        found += scanner.feed(text[begin:end])
    found += scanner.end()
    assert "".join(stretch for stretch, _ in found) == text
    assert not scanner.holds
    marks = [stretch for stretch, is_mark in found if is_mark]
    assert marks == [text[begin:end] for begin, end in spans_of(text, NAMES)]
    assert all(mark[1:-1] in NAMES for mark in marks)


def test_text_that_cannot_be_a_mark_is_released() -> None:
    """The scanner releases text as soon as it cannot become a mark."""
    scanner = MarkScanner(["a.pdf"])
    assert scanner.feed("x[a.pd") == [("x", False)]
    assert scanner.holds
    assert scanner.feed("x and more [") == [("[a.pdx and more ", False)]
    assert scanner.feed("[[") == [("[[", False)]
    assert scanner.end() == [("[", False)]


def test_a_text_without_names_is_not_held_back() -> None:
    """A scanner without names holds no text back."""
    scanner = MarkScanner([])
    assert scanner.feed("[a") == [("[a", False)]
    assert spans_of("[a]", ["a"]) == [(0, 3)]
