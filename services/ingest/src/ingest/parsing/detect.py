"""Detects a document's format by its content. The file name only distinguishes text formats."""

from pathlib import Path

from ingest.parsing import containers
from ingest.parsing.readers import READERS
from ingest.parsing.refusals import Unreadable, Unsupported
from ingest.parsing.registry import FORMATS, READABLE, Format, format_by_suffix
from ingest.parsing.text.decode import is_text

_PEEK = 64 * 1024
"""Number of bytes at the beginning of a file that are examined. For ZIP and OLE files, more of the file is read."""
# fmt: off
_UNSUPPORTED_BINARY_SUFFIXES = frozenset((
    ".doc", ".docm", ".dot", ".dotx", ".xls", ".ppt", ".gz", ".bz2", ".xz", ".7z", ".rar", ".gif", ".bmp", ".heic",
    ".mp3", ".mp4", ".wav", ".mov", ".exe", ".dll",
))
# fmt: on
_UNSUPPORTED_TEXT = ((b"%!PS", "PostScript"), (b"<svg", "SVG"))


def detect(path: Path, suffix: str) -> Format:
    """Return the format of a file.

    Args:
        path: The file.
        suffix: The suffix of the original name, for example ``.pdf``, in upper or lower case.

    Raises:
        Unreadable: The file is empty, damaged or encrypted, or its name suggests another format.
        Unsupported: The type of the file is not supported.
    """
    suffix = suffix.lower()
    with path.open("rb") as file:
        head = file.read(_PEEK)
    if not head:
        raise Unreadable("The file is empty.")
    found = _recognised(path, head, binary=True)
    if found is not None:
        return _checked_suffix(found, suffix)
    if not is_text(head):
        raise _refusal(path, head, suffix)
    return _text_format(path, head, suffix)


def _recognised(path: Path, head: bytes, *, binary: bool) -> Format | None:
    """Return the first binary (or text) format whose module recognises the file; None if none does."""
    for candidate in FORMATS:
        recognises = getattr(READERS[candidate.module], "recognises", None)
        if bool(candidate.binary) is binary and recognises is not None and recognises(path, head):
            return candidate
    return None


def _checked_suffix(found: Format, suffix: str) -> Format:
    """Return a binary format. Raise `Unreadable` if the name suggests another format."""
    if format_by_suffix(suffix) not in (None, found):
        raise Unreadable(f"The name ends with {suffix}, but the file is {found.binary}.")
    return found


def _refusal(path: Path, head: bytes, suffix: str) -> Unreadable | Unsupported:
    """Return the error for a binary file that cannot be read."""
    if containers.is_encrypted_office(path, head):
        return Unreadable("The document is encrypted and needs a password.")
    kind = containers.kind(path, head)
    by_suffix = format_by_suffix(suffix)
    if by_suffix is not None and by_suffix.zipped and containers.is_cut_off(path, head):
        return Unreadable("The file is truncated or damaged: the directory at its end is missing.")
    if by_suffix is not None and by_suffix.binary:
        expected = by_suffix.binary.partition(" (")[0]
        return Unreadable(f"The name ends with {suffix}, but the file is {kind or f'binary data, not {expected}'}.")
    if by_suffix is not None:
        return Unreadable(f"The name ends with {suffix}, but the file is {kind or 'binary data'}, not text.")
    return Unsupported(f"The file is {kind or 'binary data of an unknown type'}. {READABLE}")


def _text_format(path: Path, head: bytes, suffix: str) -> Format:
    """Return the format of a text: by its suffix, otherwise by its content, otherwise plain text.

    Raises:
        Unreadable: The suffix belongs to a binary format.
        Unsupported: The format of the text is not supported.
    """
    by_suffix = format_by_suffix(suffix)
    if suffix in _UNSUPPORTED_BINARY_SUFFIXES or (by_suffix is not None and by_suffix.binary):
        raise Unreadable(f"The name ends with {suffix}, but the file is plain text.")
    recognised = _recognised(path, head, binary=False)
    if recognised is None and by_suffix in (None, FORMATS[-1]):
        start = head.lstrip(b"\xef\xbb\xbf \t\r\n")
        for prefix, name in _UNSUPPORTED_TEXT:
            if start.startswith(prefix):
                raise Unsupported(f"The file is {name}. {READABLE}")
    return by_suffix or recognised or FORMATS[-1]
