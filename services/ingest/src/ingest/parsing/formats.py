"""The formats that are read, and the names that their files have."""

import enum

from ingest.parsing.languages import is_code


class Format(enum.Enum):
    """The formats that are read, with their media types."""

    PDF = "application/pdf"
    DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
    PPTX = "application/vnd.openxmlformats-officedocument.presentationml.presentation"
    XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
    HTML = "text/html"
    MARKDOWN = "text/markdown"
    CSV = "text/csv"
    JSON = "application/json"
    CODE = "text/x-source"
    TEXT = "text/plain"


IN_WORDS = {
    Format.PDF: "a PDF",
    Format.DOCX: "a Word document (.docx)",
    Format.PPTX: "a PowerPoint presentation (.pptx)",
    Format.XLSX: "an Excel workbook (.xlsx)",
}
"""The binary ones."""
READABLE = (
    "PDF, Word (.docx), PowerPoint (.pptx), Excel (.xlsx), HTML, Markdown, CSV, JSON, source code and plain text "
    "are read."
)
_BY_SUFFIX = {
    ".pdf": Format.PDF,
    ".docx": Format.DOCX,
    ".pptx": Format.PPTX,
    ".pptm": Format.PPTX,
    ".xlsx": Format.XLSX,
    ".xlsm": Format.XLSX,
    ".md": Format.MARKDOWN,
    ".markdown": Format.MARKDOWN,
    ".html": Format.HTML,
    ".htm": Format.HTML,
    ".xhtml": Format.HTML,
    ".csv": Format.CSV,
    ".tsv": Format.CSV,
    ".tab": Format.CSV,
    ".json": Format.JSON,
    ".geojson": Format.JSON,
    ".jsonl": Format.JSON,
    ".ndjson": Format.JSON,
    ".txt": Format.TEXT,
    ".text": Format.TEXT,
}


def format_named(suffix: str) -> Format | None:
    """The format that files with such names have; ``suffix`` in lower case, with its dot."""
    return Format.CODE if is_code(suffix) else _BY_SUFFIX.get(suffix)
