import pytest
from hypothesis import given
from hypothesis import strategies as st
from ingest.parsing.content import Head, Page, Section
from ingest.parsing.formats.html import parse
from ingest.parsing.refusals import Unreadable

from ..conftest import parsed


def sections(source: str | bytes) -> tuple[Section, ...]:
    head, page = parsed(parse, source)
    assert isinstance(head, Head)
    assert isinstance(page, Page)
    return page.sections


def test_main_text_without_the_rest() -> None:
    """Scripts, styles, navigation, footers and hidden parts are left out."""
    [section] = sections(
        "<html><head><style>p{}</style></head><body><nav>Menu</nav><script>x()</script><h1>Fares</h1>"
        "<p>An adult  pays\n <b>18</b> pounds.</p><p hidden>secret</p><footer>Imprint</footer></body></html>"
    )
    assert section == Section(("Fares",), "Fares\n\nAn adult pays 18 pounds.")


def test_main_element_is_preferred() -> None:
    """If there is one main element, the text outside it is left out."""
    [section] = sections("<title>T</title><body><div>Banner</div><main><p>Text.</p></main>")
    assert section == Section(("T",), "T\n\nText.")


def test_headings_make_a_path() -> None:
    """h1 to h6 nest. An empty heading is ignored."""
    found = sections("<h1>A</h1><p>one</p><h2>B</h2><p>two</p><h2></h2><h3>C</h3><p>three</p><h2>D</h2>four")
    assert [section.headings for section in found] == [("A",), ("A", "B"), ("A", "B", "C"), ("A", "D")]


def test_lists_tables_and_code() -> None:
    """Items and rows are lines, cells have the names of their columns, and preformatted text does not change."""
    [section] = sections(
        "<p>Intro</p><ul><li>one<li><p>two</p><ol><li>deep</ol></ul>"
        "<table><tr><th>Ship<th>Seats<tr><td>Petrel<td>420</table>"
        "<pre>a\n  b</pre><p>a<br>b</p>"
    )
    assert section.text == ("Intro\n- one\n- two\n  1. deep\n\nShip: Petrel; Seats: 420\n\na\n  b\n\na\nb")


def test_cells_that_span_rows_and_columns() -> None:
    """A spanning cell appears in each of its rows and shifts the other cells. Header rows are joined."""
    [section] = sections(
        "<table><thead><tr><td rowspan=2>Ship<td colspan=2>Seats<tr><td>in<td>out</thead>"
        "<tr><td rowspan=2>Petrel<td>400<td>20<tr><td colspan=2>closed<tr><td>Fulmar<td rowspan=x>1<td colspan="
        + "9" * 5000
        + ">2</table>"
    )
    rows = [
        "Ship: Petrel; Seats in: 400; out: 20",
        "Ship: Petrel; Seats in: closed",
        "Ship: Fulmar; Seats in: 1; out: 2",
    ]
    assert section.text == "\n".join(rows)
    assert [section.text[start:end] for start, end in section.whole] == rows


def test_tables_for_layout_are_text() -> None:
    """A table with headings and paragraphs is read as text, in its order."""
    found = sections("<table><tr><td><h2>A</h2><p>one</p></td><td><h2>B</h2><p>two</p></td></tr></table>")
    assert [section.headings for section in found] == [("A",), ("B",)]


def test_the_language_of_a_page() -> None:
    """The document has the language of the root element."""
    head, _ = parsed(parse, '<html lang="de-CH"><p>Grüezi')
    assert isinstance(head, Head)
    assert head.language == "de-CH"


def test_deep_nesting_is_read() -> None:
    """Any depth is read, because the parser does not recurse."""
    [section] = sections("<div>" * 3000 + "inside" + "</div>" * 3000)
    assert section.text == "inside"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ('<meta charset="iso-8859-1">Grüße'.encode("latin-1"), "Grüße"),
        (
            '<meta http-equiv="Content-Type" content="text/html; charset=windows-1251">Паром'.encode("cp1251"),
            "Паром",
        ),
        ('<meta charset="utf-8">Grüße, schöne Überfahrt nach München'.encode("latin-1"), "Überfahrt"),
        ('<meta charset="nonsense">Grüße'.encode(), "Grüße"),
        ('<meta content="Łukasz" charset="iso-8859-2">gęślą jaźń'.encode("iso-8859-2"), "gęślą jaźń"),
        ('<meta charset="undefined">Grüße'.encode(), "Grüße"),
        ('<meta charset="utf-16">Grüße'.encode(), "Grüße"),
        ('<meta charset="utf-16">Grüße '.encode(), "Grüße"),
        ("Grüße".encode("utf-16"), "Grüße"),
    ],
)
def test_declared_encodings(data: bytes, expected: str) -> None:
    """A declared encoding is used if it is correct."""
    assert expected in sections(data)[0].text


# fmt: off
SOUP = (
    "<p>", "<h1>", "</h1>", "<ul>", "<li>", "</ul>", "<table>", "<tr>", "<td>", "<th>", "</table>", "x", "<pre>",
    "<br>", "<nav>", "</div>", "&amp;", "<!-- -->",
)
# fmt: on


@given(st.lists(st.sampled_from(SOUP)))
def test_any_soup_parses(tags: list[str]) -> None:
    """Any nesting of elements results in text or a refusal."""
    try:
        found = sections("".join(tags))
    except Unreadable:
        return
    assert all(section.text.strip() for section in found)
