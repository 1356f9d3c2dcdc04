from dataclasses import replace

import pytest
from ingest.domain import Document

DOCUMENT = Document("id", "a", "0" * 64, 5, page_count=3)
SLIDES = "application/vnd.openxmlformats-officedocument.presentationml.presentation"
ODP = "application/vnd.oasis.opendocument.presentation"


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (replace(DOCUMENT, content_type="application/pdf"), False),
        (replace(DOCUMENT, content_type="application/pdf", has_pictures=True), True),
        (replace(DOCUMENT, content_type=SLIDES), True),
        (replace(DOCUMENT, content_type=ODP), True),
        (replace(DOCUMENT, content_type="image/tiff"), True),
        (replace(DOCUMENT, content_type="text/plain", page_count=0), True),
    ],
)
def test_pictures_are_compared_only_if_possible(document: Document, expected: bool) -> None:
    """If documents of a type never have pictures, versions with and without pictures have the same content."""
    assert document.has_same_content_as(replace(DOCUMENT, page_count=0, has_pictures=True)) is expected
