from dataclasses import replace

import pytest
from ingest.domain import Document

THERE = Document("id", "a", "0" * 64, 5, page_count=3)
SLIDES = "application/vnd.openxmlformats-officedocument.presentationml.presentation"


@pytest.mark.parametrize(
    ("there", "reads_as"),
    [
        (replace(THERE, content_type="application/pdf"), False),
        (replace(THERE, content_type="application/pdf", has_pictures=True), True),
        (replace(THERE, content_type=SLIDES), True),
        (replace(THERE, content_type="text/plain", page_count=0), True),
    ],
)
def test_pictures_are_compared_only_if_possible(there: Document, reads_as: bool) -> None:
    """If documents of a type never have pictures, versions with and without pictures have the same content."""
    assert there.has_same_content_as(replace(THERE, page_count=0, has_pictures=True)) is reads_as
