from hypothesis import given
from hypothesis import strategies as st
from ingest.parsing.content import Head, Page, Section
from ingest.parsing.formats.markdown import parse

from ..conftest import parsed


def sections(text: str) -> tuple[Section, ...]:
    head, page = parsed(parse, text)
    assert head == Head("text/markdown")
    assert isinstance(page, Page)
    assert page.number == 0
    return page.sections


def test_headings_make_a_path() -> None:
    """Each section has its headings, outermost first, and begins with its own heading."""
    found = sections("# A\n\none\n\n## B\n\ntwo\n\n### C\n\nthree\n\n## D\n\nfour\n")
    assert [section.headings for section in found] == [("A",), ("A", "B"), ("A", "B", "C"), ("A", "D")]
    assert found[1].text == "B\n\ntwo"


def test_headings_without_text_join_the_next_section() -> None:
    """A heading without text joins the next section. At the end of the file it is a section."""
    assert [section.text for section in sections("# A\n\n## B\n\ntext\n\n## C\n")] == ["A\nB\n\ntext", "C"]


def test_wrapped_lines_are_joined_and_marks_removed() -> None:
    """The marks of emphasis, links and code are removed. Line breaks within a paragraph become spaces."""
    [section] = sections("Some *very* **bold**\n`code` and a [link](http://x.example).  \nA hard break.\n")
    assert section.text == "Some very bold code and a link.\nA hard break."


def test_rows_have_column_names() -> None:
    """Each row has the names of its columns, so that it is understandable without the header."""
    [section] = sections("| Ship | Seats |\n|---|---|\n| Petrel | 420 |\n| Fulmar | |\n")
    assert section.text == "Ship: Petrel; Seats: 420\nShip: Fulmar"


def test_lists_keep_their_items() -> None:
    """Each item is one line. Nested items are indented. Numbers remain."""
    [section] = sections("Intro:\n\n- one\n  goes on\n- two\n  1. deep\n  2. deeper\n\nAfter.\n")
    assert section.text == "Intro:\n\n- one goes on\n- two\n  1. deep\n  2. deeper\n\nAfter."


def test_code_is_kept_as_it_is() -> None:
    """Indentation and line breaks of code blocks do not change."""
    [section] = sections("```python\ndef f():\n    return 1\n```\n")
    assert section.text == "def f():\n    return 1"


def test_html_and_front_matter() -> None:
    """HTML tags and comments are removed. Front matter is text, not a heading."""
    [front, section] = sections("---\ntitle: Fares\n---\n# Head\n\n<div>in a <b>div</b></div>\n\n<!-- secret -->\n")
    assert front == Section((), "title: Fares")
    assert section.text == "Head\n\nin a div"


@given(st.text(alphabet=st.sampled_from("abc#*`|-_[]()<>!\n \t1.>~:\\&"), max_size=200))
def test_any_text_parses(text: str) -> None:
    """No text raises an error, because any text is valid Markdown."""
    for section in sections(text):
        assert section.text.strip()
