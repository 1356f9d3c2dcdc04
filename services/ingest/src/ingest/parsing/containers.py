"""Identifies binary files by their content: Office documents, packages, and types that are not supported."""

import mmap
import re
import zipfile
from pathlib import Path

import puremagic

from ingest.parsing.office.ooxml import damage_is_unreadable

_ZIP = b"PK\x03\x04"
_COMPOUND = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
"""MS-CFB 2.2: the container of Office files before 2007, and of encrypted files today."""
_MAX_MEMBER_BYTES = 1024**2
"""Maximum bytes that are read of a member of a ZIP file."""
# Noun phrases for unsupported documents, by a piece of the content type of their main part.
_UNSUPPORTED_MAIN_PARTS = {
    b"ms-word.document.macroEnabled": "a Word document with macros (.docm); save it as .docx",
    b"wordprocessingml.template": "a Word template (.dotx); save it as .docx",
    b"presentationml.slideshow": "a PowerPoint show (.ppsx); save it as .pptx",
    b"presentationml.template": "a PowerPoint template (.potx); save it as .pptx",
    b"spreadsheetml.template": "an Excel template (.xltx); save it as .xlsx",
    b"ms-excel.sheet.binary": "a binary Excel workbook (.xlsb); save it as .xlsx",
}
# Noun phrases for unsupported compound files, by the name of a stream.
_LEGACY_STREAMS = {
    "WordDocument": "a Word document from before 2007 (.doc); save it as .docx",
    "PowerPoint Document": "a PowerPoint presentation from before 2007 (.ppt); save it as .pptx",
    "Workbook": "an Excel workbook from before 2007 (.xls); save it as .xlsx",
}
_OPEN_DOCUMENT = re.compile(rb"application/(?:vnd\.oasis\.opendocument\.(\w+)|(epub)\+zip)")


def has_main_part(path: Path, head: bytes, *content_types: bytes) -> bool:
    """Return whether a file is an Office document (Open XML) whose main part has one of these content types.

    Raises:
        Unreadable: The file is a damaged ZIP file.
    """
    if not head.startswith(_ZIP):
        return False
    types = _member(path, "[Content_Types].xml")
    return any(content_type in types for content_type in content_types)


def has_stream(path: Path, head: bytes, *names: str) -> bool:
    """Return whether a file is a compound file with all of these streams or storages (MS-CFB 2.6)."""
    return head.startswith(_COMPOUND) and all(_has_stream(path, name) for name in names)


def package_type(path: Path, head: bytes) -> str:
    """Return the media type that an OpenDocument package or an e-book declares; an empty string for other files.

    Raises:
        Unreadable: The file is a damaged ZIP file.
    """
    if not head.startswith(_ZIP):
        return ""
    return _member(path, "mimetype").decode("ascii", "replace").strip()


def is_plain_zip(path: Path, head: bytes) -> bool:
    """Return whether a file is a ZIP file but not a document package.

    Raises:
        Unreadable: The file is a damaged ZIP file.
    """
    if not head.startswith(_ZIP) or not zipfile.is_zipfile(path):
        return False
    return not _member(path, "[Content_Types].xml") and not _OPEN_DOCUMENT.match(_member(path, "mimetype"))


def is_encrypted_office(path: Path, head: bytes) -> bool:
    """Return whether the file is an Office document that needs a password (MS-OFFCRYPTO 2.3.2)."""
    return has_stream(path, head, "EncryptedPackage")


def is_cut_off(path: Path, head: bytes) -> bool:
    """Return whether the file begins as a ZIP file but lacks the directory at its end."""
    return head.startswith(_ZIP) and not zipfile.is_zipfile(path)


def kind(path: Path, head: bytes) -> str | None:
    """Return a noun phrase for the type of a binary file, or None if the type is unknown.

    Raises:
        Unreadable: The file is a damaged ZIP file.
    """
    if head.startswith(_ZIP) or zipfile.is_zipfile(path):
        return _zip_kind(path)
    if head.startswith(_COMPOUND):
        return next(
            (description for stream, description in _LEGACY_STREAMS.items() if _has_stream(path, stream)), None
        )
    if not head.strip(b"\0"):
        return "nothing but zero bytes"
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
    types = _member(path, "[Content_Types].xml")
    for content_type, description in _UNSUPPORTED_MAIN_PARTS.items():
        if content_type in types:
            return description
    other = _OPEN_DOCUMENT.match(_member(path, "mimetype"))
    if other:
        return f"an OpenDocument {other[1].decode()}" if other[1] else "an e-book (.epub)"
    return "a package of an unknown kind (Open Packaging Conventions)" if types else "a damaged ZIP archive"


def _member(path: Path, name: str) -> bytes:
    """Return the first MiB of a member of a ZIP file; empty if the file is not a ZIP file or lacks the member.

    Raises:
        Unreadable: The member cannot be unpacked.
    """
    if not zipfile.is_zipfile(path):
        return b""
    with damage_is_unreadable("The file"), zipfile.ZipFile(path) as archive:
        if name not in archive.namelist():
            return b""
        with archive.open(name) as member:
            return member.read(_MAX_MEMBER_BYTES)


def _has_stream(path: Path, name: str) -> bool:
    """Return whether a compound file contains the name of a stream. The directory may be anywhere in the file."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(name.encode("utf-16-le")) >= 0
