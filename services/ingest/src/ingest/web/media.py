"""Media types that web servers give documents, and what such files are called."""

from email.message import EmailMessage

from servicekit.errors import UnsupportedMedia

from ingest.parsing.formats import READABLE, Format

_SUFFIXES = {
    Format.PDF.value: ".pdf",
    Format.DOCX.value: ".docx",
    Format.PPTX.value: ".pptx",
    Format.XLSX.value: ".xlsx",
    "text/html": ".html",
    "application/xhtml+xml": ".html",
    "text/markdown": ".md",
    "text/csv": ".csv",
    "text/tab-separated-values": ".tsv",
    "application/json": ".json",
    "application/geo+json": ".json",
    "application/ld+json": ".json",
    "application/x-ndjson": ".jsonl",
    "application/jsonl": ".jsonl",
}
_UNTOLD = ("", "application/octet-stream", "binary/octet-stream", "application/download", "text/plain")
"""The URL's own ending says more than these."""


def suffix_of(content_type: str, ending: str) -> str:
    """How the name of a file would end that has this content type.

    Args:
        content_type: The header; may be empty.
        ending: How the URL's path ends, with its dot; may be empty.

    Raises:
        UnsupportedMedia: Such files are not read.
    """
    message = EmailMessage()
    message["content-type"] = content_type.replace("\n", " ").replace("\r", " ")
    media = message.get_content_type().lower() if content_type.strip() else ""
    if media in _UNTOLD:
        return ending or (".txt" if media == "text/plain" else "")
    if media in _SUFFIXES:
        return _SUFFIXES[media]
    if media.startswith("text/"):
        return ending or ".txt"
    raise UnsupportedMedia(f"What is behind the URL is of the type {media}. {READABLE}")
