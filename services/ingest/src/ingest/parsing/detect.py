"""A document's format, by its content; its name decides between text formats alone, and may not lie."""

import re
from pathlib import Path

from ingest.parsing import containers
from ingest.parsing.decode import is_text
from ingest.parsing.formats import IN_WORDS, READABLE, Format, format_named
from ingest.parsing.refusals import Unreadable, Unsupported

_PEEK = 64 * 1024
# fmt: off
_BINARY_SUFFIXES = frozenset((
    ".pdf", ".doc", ".docx", ".docm", ".dot", ".dotx", ".xls", ".xlsx", ".xlsm", ".ppt", ".pptx", ".pptm", ".odt",
    ".ods", ".odp", ".rtf", ".epub", ".zip", ".gz", ".tgz", ".bz2", ".xz", ".7z", ".rar", ".tar", ".png", ".jpg",
    ".jpeg", ".gif", ".webp", ".bmp", ".tif", ".tiff", ".heic", ".mp3", ".mp4", ".wav", ".mov", ".exe", ".dll",
))
# fmt: on
_HTML = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)*<(?:!doctype\s+html|html|head|body)\b",
    re.IGNORECASE | re.DOTALL,
)
_JSON = re.compile(rb"(?:\{\s*(?:\"|\})|\[\s*(?:[\[{\"\d\]-]|true|false|null))")
_TEXTUAL_BUT_UNREAD = ((b"{\\rtf", "RTF"), (b"%!PS", "PostScript"), (b"<?xml", "XML"), (b"<svg", "SVG"))


def detect(path: Path, suffix: str) -> Format:
    """The format of a file.

    Args:
        path: The file.
        suffix: The end of the name that people know it by, for example ``.pdf``; any case.

    Raises:
        Unreadable: It is empty, damaged or encrypted, or its name promises another type than it has.
        Unsupported: It is of a type that is not read here.
    """
    suffix = suffix.lower()
    with path.open("rb") as file:
        head = file.read(_PEEK)
    if not head:
        raise Unreadable("The file is empty.")
    # The header may follow some junk (ISO 32000-1, annex H, note 13: within the first 1024 bytes).
    found = Format.PDF if b"%PDF-" in head[:1024] else containers.office_format(path, head)
    if found is not None:
        return _as_named(found, suffix)
    if not is_text(head):
        raise _refused(path, head, suffix)
    return _text_format(head, suffix)


def _as_named(found: Format, suffix: str) -> Format:
    """A binary format, unless the name speaks of another one."""
    if format_named(suffix) not in (None, found):
        raise Unreadable(f"The name ends with {suffix}, but the file is {IN_WORDS[found]}.")
    return found


def _refused(path: Path, head: bytes, suffix: str) -> Unreadable | Unsupported:
    """Why a binary file is not read."""
    if containers.is_encrypted_office(path, head):
        return Unreadable("The document is encrypted: it opens with a password only.")
    kind = containers.kind(path, head)
    named = format_named(suffix)
    if named in IN_WORDS and named is not Format.PDF and containers.is_cut_off(path, head):
        return Unreadable("The file is truncated or damaged: its end, with the list of its parts, is missing.")
    if named in IN_WORDS:
        promised = IN_WORDS[named].partition(" (")[0]
        return Unreadable(f"The name ends with {suffix}, but the file is {kind or f'binary data, not {promised}'}.")
    if named is not None:
        return Unreadable(f"The name ends with {suffix}, but the file is {kind or 'binary data'}, not text.")
    return Unsupported(f"The file is {kind or 'binary data of an unknown type'}. {READABLE}")


def _text_format(head: bytes, suffix: str) -> Format:
    if suffix in _BINARY_SUFFIXES and not (suffix == ".rtf" and head.startswith(b"{\\rtf")):
        raise Unreadable(f"The name ends with {suffix}, but the file is plain text.")
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    looks_html = bool(_HTML.match(head))
    if not looks_html:
        for mark, name in _TEXTUAL_BUT_UNREAD:
            if start.startswith(mark):
                raise Unsupported(f"The file is {name}. {READABLE}")
    named = format_named(suffix)
    if named is not None:
        return named
    if looks_html:
        return Format.HTML
    if start.startswith(b"#!"):
        return Format.CODE
    return Format.JSON if _JSON.match(start) else Format.TEXT
