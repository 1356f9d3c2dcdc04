import csv

import pytest
from ingest.parsing.content import Head

from ..conftest import Read


def text(read: Read, source: str, name: str = "a.csv") -> str:
    head, [page] = read(source.encode(), name)
    assert head == Head("text/csv")
    return "\n---\n".join(section.text for section in page.sections)


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_delimiter_is_found(read: Read, delimiter: str) -> None:
    """With every delimiter, each row becomes a line with the names of its columns."""
    source = "name,seats\nPetrel,420\nFulmar,300\n".replace(",", delimiter)
    assert text(read, source) == "name: Petrel; seats: 420\nname: Fulmar; seats: 300"


def test_quotes_and_breaks(read: Read) -> None:
    """A cell may contain delimiters, quotes and line breaks. A decimal comma is not a delimiter."""
    assert text(read, 'a;b\r\n"x; y";"say ""hi""\r\nthere"\r\n') == 'a: x; y; b: say "hi" there'
    assert text(read, "place;price\nOban;1,50\nMull;2,50\n") == "place: Oban; price: 1,50\nplace: Mull; price: 2,50"


def test_a_quote_that_is_not_closed(read: Read) -> None:
    """The text after an open quote is read up to the end. A cell may be long."""
    assert text(read, 'a,b\n1,"open\n2,3\n').split() == ["a:", "1;", "b:", "open", "2,3"]
    ligatures = "ﬃ" * csv.field_size_limit()  # each becomes three letters
    assert text(read, f"a,b\n1,{ligatures}\n").count("ffi") == len(ligatures)
