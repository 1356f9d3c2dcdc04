"""CSV and similar formats: one line for each row, with the names of the columns."""

import csv
import itertools
from collections import Counter
from collections.abc import Iterator

from ingest.parsing.content import Head, Page
from ingest.parsing.frames import Request
from ingest.parsing.text import grids
from ingest.parsing.text.clean import clean, flat
from ingest.parsing.text.decode import text_of
from ingest.parsing.text.outline import Outline

_DELIMITERS = ",;\t|"
_SAMPLE = 50
"""Number of non-blank lines that determine the delimiter."""


def parse(request: Request) -> Iterator[Head | Page]:
    """Yield the head and the single page of a table."""
    text = clean(text_of(request))
    yield Head("text/csv")
    csv.field_size_limit(max(len(text), csv.field_size_limit()))  # a cell may be as long as the text
    lines = text.split("\n")
    outline = Outline()
    reader = csv.reader((line + "\n" for line in lines), delimiter=_delimiter(lines))
    grids.fill(outline, ([flat(cell) for cell in row] for row in reader))
    yield Page(0, outline.end_page())


def _delimiter(lines: list[str]) -> str:
    """Return the delimiter that splits the first rows most evenly into several cells. The default is the comma."""
    sample = [line + "\n" for line in itertools.islice((line for line in lines if line.strip()), _SAMPLE)]

    def evenness(delimiter: str) -> tuple[float, int]:
        widths = Counter(len(row) for row in csv.reader(sample, delimiter=delimiter))
        width, count = max(widths.items(), key=lambda item: (item[1], item[0]), default=(1, 0))
        return (count / max(1, widths.total()) if width > 1 else 0.0), width

    return max(_DELIMITERS, key=evenness)
