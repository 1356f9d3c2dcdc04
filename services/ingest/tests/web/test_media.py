import pytest
from ingest.web.media import suffix_of
from servicekit.errors import UnsupportedMedia


@pytest.mark.parametrize(
    ("content_type", "ending", "suffix"),
    [
        ("text/html; charset=utf-8", ".php", ".html"),
        ("TEXT/HTML", "", ".html"),
        ("application/pdf", "", ".pdf"),
        ("text/markdown", "", ".md"),
        ("text/plain", ".py", ".py"),
        ("text/plain", "", ".txt"),
        ("text/x-unknown", "", ".txt"),
        ("", ".docx", ".docx"),
        ("application/octet-stream", ".xlsx", ".xlsx"),
        ("application/octet-stream", "", ""),
    ],
)
def test_what_a_document_is_called(content_type: str, ending: str, suffix: str) -> None:
    """Its server says what it is; where that says nothing, the end of its URL."""
    assert suffix_of(content_type, ending) == suffix


@pytest.mark.parametrize("content_type", ["image/png", "video/mp4", "application/zip", "application/x-\r\nfoo"])
def test_what_is_not_read_is_not_fetched(content_type: str) -> None:
    """Before its body is."""
    with pytest.raises(UnsupportedMedia):
        suffix_of(content_type, ".html")
