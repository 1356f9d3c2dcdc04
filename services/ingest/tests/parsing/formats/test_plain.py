from ingest.parsing.content import Page
from ingest.parsing.formats.plain import parse

from ..conftest import parsed


def text(source: str, suffix: str = ".txt") -> str:
    _, page = parsed(parse, source, suffix)
    assert isinstance(page, Page)
    return "\n---\n".join(section.text for section in page.sections)


def test_lines_wrapped_by_hand_are_joined() -> None:
    """The lines of hard-wrapped prose are joined into paragraphs. Lists and short lines are not joined."""
    source = (
        "The ferry leaves at eight in the morning and takes\r\n"
        "an hour and a half. Children travel free when an\r\n"
        "adult is with them.\r\n\r\n"
        "- one\r\n- two\r\n"
    )
    assert text(source) == (
        "The ferry leaves at eight in the morning and takes an hour and a half. Children travel free when an "
        "adult is with them.\n\n- one\n- two"
    )


def test_other_text_does_not_change() -> None:
    """Lines of settings and of unwrapped text do not change."""
    assert text("if x:\n    y: 1\n\nz: 2\n", ".yaml") == "if x:\n    y: 1\n\nz: 2"
    long = "A line that is much longer than anybody would wrap by hand, " * 4
    assert text(f"{long}\nshort one\nand another\n") == f"{long.strip()}\nshort one\nand another"


def test_invisible_characters_are_removed() -> None:
    """Control and zero-width characters are removed, and decomposed letters are composed."""
    assert text("a\x07b\u200bc e\u0301 \ufeff\n") == "abc é"
