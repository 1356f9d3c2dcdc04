import pytest
from ingest.parsing.content import Page
from ingest.parsing.formats.rtf import parse
from ingest.parsing.refusals import Unreadable

from ..conftest import parsed


def test_text_and_tables() -> None:
    """Paragraphs, characters of all code pages and a line for each row are read. Fonts and pictures are not."""
    content = (
        rb"{\rtf1\ansi\ansicpg1252{\fonttbl{\f0 Arial;}}{\info{\author Ann}}\f0 Die F\'e4hre f\u228\'e4hrt.\par "
        rb"Second line.\par{\pict\pngblip 89504e47}"
        rb"\trowd\cellx1000\cellx2000\intbl Vessel\cell Seats\cell\row\intbl Petrel\cell 420\cell\row"
        rb"\pard End.\par}"
    )
    _, page = parsed(parse, content)
    assert isinstance(page, Page)
    assert [section.text for section in page.sections] == [
        "Die Fähre fährt.\n\nSecond line.\n\nVessel | Seats\nPetrel | 420\n\nEnd."
    ]


def test_a_file_that_is_not_rtf_is_refused() -> None:
    """A file is refused if only its name is RTF."""
    with pytest.raises(Unreadable, match="plain text"):
        parsed(parse, b"Dear Sir,", ".rtf")
