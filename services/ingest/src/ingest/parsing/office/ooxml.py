"""Checks an Office Open XML document (ECMA-376) before a library opens it, and converts the library's errors."""

import contextlib
import zipfile
from collections.abc import Iterator
from pathlib import Path

from lxml import etree  # type: ignore[import-untyped]  # ships no types

from ingest.parsing.refusals import Refusal, TooLarge, Unreadable, Unsupported

_MAX_PARTS = 50_000
_HEAD_BYTES = 4096
"""Bytes at the beginning of an XML part that are checked."""
_STRICT = b"purl.oclc.org/ooxml"
# Parser errors of libxml2.
_NO_MEMORY = 2
_RESOURCE_LIMIT = 114


def check(path: Path, memory: int) -> None:
    """Check that a document can be unpacked safely.

    Args:
        path: The document.
        memory: The parser's memory limit in bytes. Libraries load all parts, and XML takes many times its size.

    Raises:
        Unreadable: The document is damaged or encrypted, or contains a document type definition (DTD).
        Unsupported: The document is Strict Open XML, which the libraries do not support.
        TooLarge: The document is too large when unpacked, or has too many parts.
    """
    with damage_is_unreadable("The document"), zipfile.ZipFile(path) as package:
        parts = package.infolist()
        if len(parts) > _MAX_PARTS:
            raise TooLarge(f"The document has {len(parts)} parts. The limit is {_MAX_PARTS} parts.")
        xml = [part for part in parts if part.filename.endswith((".xml", ".rels"))]
        _check_size("The document", sum(part.file_size for part in parts), memory // 2)
        _check_size("The document's text", sum(part.file_size for part in xml), memory // 4)
        for part in xml:
            with package.open(part) as file:
                head = file.read(_HEAD_BYTES).replace(b"\0", b"")
            if b"<!DOCTYPE" in head or b"<!ENTITY" in head:  # forbidden by part 2, 8.2.5.2
                raise Unreadable("The document has an XML DTD, which is not allowed in Office documents.")
            if part.filename == "_rels/.rels" and _STRICT in head:
                raise Unsupported("The document is Strict Open XML. Save it in the default format (Transitional).")


@contextlib.contextmanager
def damage_is_unreadable(subject: str) -> Iterator[None]:
    """Convert exceptions of a library to `Unreadable`, because a damaged document can cause any exception.

    Raises:
        Unreadable: The code within the context raised an exception.
        Refusal, MemoryError, RecursionError: The code raised this exception, or libxml2 had too little memory.
    """
    try:
        yield
    except (Refusal, MemoryError, RecursionError):
        raise
    except etree.XMLSyntaxError as error:
        if error.code == _NO_MEMORY:
            raise MemoryError from error
        if error.code == _RESOURCE_LIMIT:
            raise Unreadable(f"{subject} is nested too deeply, or a text in it is too long.") from error
        raise Unreadable(f"{subject} is damaged or truncated: its XML is broken.") from error
    except Exception as error:  # a damaged document can cause any exception
        raise Unreadable(f"{subject} is damaged or truncated: it cannot be read.") from error


def _check_size(subject: str, size: int, limit: int) -> None:
    # The declared size of a part is reliable, because zipfile does not read more bytes.
    if size > limit:
        raise TooLarge(f"{subject} unpacks to {size} bytes. The limit is {limit} bytes.")
