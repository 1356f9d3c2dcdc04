"""RTF: the paragraphs of the text, and one line for each table row."""

from collections.abc import Iterator
from pathlib import Path

from striprtf.striprtf import rtf_to_text

from ingest.parsing.content import Head, Page
from ingest.parsing.frames import Request
from ingest.parsing.office.ooxml import damage_is_unreadable
from ingest.parsing.refusals import Unreadable
from ingest.parsing.text.clean import collapse
from ingest.parsing.text.decode import data_of
from ingest.parsing.text.lines import COLUMN
from ingest.parsing.text.outline import Outline

_SIGNATURE = b"{\\rtf"


def recognises(_path: Path, head: bytes) -> bool:
    """Return whether a text begins with the signature of RTF 1."""
    return head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(_SIGNATURE)


def parse(request: Request) -> Iterator[Head | Page]:
    """Yield the head and the single page of a document.

    Raises:
        Unreadable: The document is damaged, or is not RTF.
    """
    data = data_of(request)
    if not recognises(Path(request.path), data[:64]):
        raise Unreadable("The name ends with .rtf, but the file is plain text.")
    yield Head("application/rtf")
    with damage_is_unreadable("The document"):
        # RTF is ASCII. Other characters are escaped, in the code page that the document declares.
        text: str = rtf_to_text(data.decode("cp1252", "replace"), errors="replace")  # type: ignore[no-untyped-call]  # has no types
    outline = Outline()
    before_is_row = False
    for line in text.split("\n"):
        cells = [collapse(cell) for cell in line.split("|")] if line.rstrip().endswith("|") else []
        is_row = len(cells) > 1
        words = COLUMN.join(filter(None, cells)) if is_row else collapse(line)
        outline.block(words, tight=is_row and before_is_row, whole=is_row)
        before_is_row = is_row
    yield Page(0, outline.end_page())
