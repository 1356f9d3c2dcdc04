"""A document's format, by its content; its name decides between text formats alone, and may not lie."""

import enum
import re
import zipfile
from pathlib import Path

import puremagic

from ingest.parsing.decode import is_text
from ingest.parsing.refusals import Unreadable, Unsupported

_PEEK = 64 * 1024


class Format(enum.Enum):
    """The formats that are read, with their media types."""

    PDF = "application/pdf"
    HTML = "text/html"
    MARKDOWN = "text/markdown"
    TEXT = "text/plain"


_BY_SUFFIX = {
    ".md": Format.MARKDOWN,
    ".markdown": Format.MARKDOWN,
    ".html": Format.HTML,
    ".htm": Format.HTML,
    ".xhtml": Format.HTML,
    ".txt": Format.TEXT,
    ".text": Format.TEXT,
}
# fmt: off
_BINARY_SUFFIXES = frozenset((
    ".pdf", ".doc", ".docx", ".dot", ".dotx", ".xls", ".xlsx", ".ppt", ".pptx", ".odt", ".ods", ".odp", ".rtf",
    ".epub", ".zip", ".gz", ".tgz", ".bz2", ".xz", ".7z", ".rar", ".tar", ".png", ".jpg", ".jpeg", ".gif", ".webp",
    ".bmp", ".tif", ".tiff", ".heic", ".mp3", ".mp4", ".wav", ".mov", ".exe", ".dll",
))
# fmt: on
_HTML = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)*<(?:!doctype\s+html|html|head|body)\b",
    re.IGNORECASE | re.DOTALL,
)
_TEXTUAL_BUT_UNREAD = ((b"{\\rtf", "RTF"), (b"%!PS", "PostScript"), (b"<?xml", "XML"), (b"<svg", "SVG"))
_IN_ZIP = {
    "word": "a Word document (.docx)",
    "xl": "an Excel workbook (.xlsx)",
    "ppt": "a PowerPoint presentation (.pptx)",
}
READABLE = "PDF, HTML, Markdown and plain text are read."


def detect(path: Path, suffix: str) -> Format:
    """The format of a file.

    Args:
        path: The file.
        suffix: The end of the name that people know it by, for example ``.pdf``; any case.

    Raises:
        Unreadable: It is empty, or its name promises another type than it has.
        Unsupported: It is of a type that is not read here.
    """
    suffix = suffix.lower()
    with path.open("rb") as file:
        head = file.read(_PEEK)
    if not head:
        raise Unreadable("The file is empty.")
    # The header may follow some junk (ISO 32000-1, annex H, note 13: within the first 1024 bytes).
    if b"%PDF-" in head[:1024]:
        if suffix in _BY_SUFFIX:
            raise Unreadable(f"The name ends with {suffix}, but the file is a PDF.")
        return Format.PDF
    if not is_text(head):
        kind = _kind(path)
        if suffix == ".pdf":
            raise Unreadable(f"The name ends with .pdf, but the file is {kind or 'binary data, not a PDF'}.")
        if suffix in _BY_SUFFIX:
            raise Unreadable(f"The name ends with {suffix}, but the file is {kind or 'binary data'}, not text.")
        if kind is None:
            raise Unsupported(f"The file is binary data of an unknown type. {READABLE}")
        raise Unsupported(f"The file is {kind}. {READABLE}")
    return _text_format(head, suffix)


def _text_format(head: bytes, suffix: str) -> Format:
    if suffix in _BINARY_SUFFIXES and not (suffix == ".rtf" and head.startswith(b"{\\rtf")):
        raise Unreadable(f"The name ends with {suffix}, but the file is plain text.")
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    looks_html = bool(_HTML.match(head))
    if not looks_html:
        for mark, name in _TEXTUAL_BUT_UNREAD:
            if start.startswith(mark):
                raise Unsupported(f"The file is {name}. {READABLE}")
    named = _BY_SUFFIX.get(suffix)
    if named is not None:
        return named
    return Format.HTML if looks_html else Format.TEXT


def _kind(path: Path) -> str | None:
    """What a binary file is, in words."""
    if zipfile.is_zipfile(path):
        return _zip_kind(path)
    try:
        matches = puremagic.magic_file(str(path))
    except (puremagic.PureError, ValueError, OSError):
        return None
    best = max(matches, key=lambda match: match.confidence, default=None)
    if best is None or not best.name:
        return None
    article = "an" if best.name[0].lower() in "aeiou" else "a"
    return f"{article} {best.name}" + (f" ({best.extension})" if best.extension else "")


def _zip_kind(path: Path) -> str:
    """ZIP files by the names in their directory; nothing is unpacked."""
    try:
        with zipfile.ZipFile(path) as archive:
            folders = {name.partition("/")[0] for name in archive.namelist()}
    except zipfile.BadZipFile:
        folders = set()
    return next((kind for folder, kind in _IN_ZIP.items() if folder in folders), "a ZIP archive (.zip)")
