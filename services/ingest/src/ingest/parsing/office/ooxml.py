"""Office Open XML (ECMA-376): what is looked at before a library opens a document, and what goes wrong inside."""

import contextlib
import zipfile
from collections.abc import Iterator
from pathlib import Path

from lxml import etree  # type: ignore[import-untyped]  # ships no types

from ingest.parsing.refusals import Refusal, TooLarge, Unreadable, Unsupported

_MOST_PARTS = 50_000
_HEAD = 4096
_STRICT = b"purl.oclc.org/ooxml"
# Of libxml2's parser errors.
_NO_MEMORY = 2
_RESOURCE_LIMIT = 114


def check(path: Path, memory: int) -> None:
    """Refuses what must not be unpacked.

    Args:
        path: The document.
        memory: Bytes that the parser may have. Libraries hold all parts, and XML as objects many times its size.

    Raises:
        Unreadable: It is damaged, encrypted, or declares entities.
        Unsupported: It is of the strict variant, which the libraries do not read.
        TooLarge: It unpacks to too much.
    """
    with damaged("The document"), zipfile.ZipFile(path) as package:
        parts = package.infolist()
        if len(parts) > _MOST_PARTS:
            raise TooLarge(f"The document has {len(parts)} parts; at most {_MOST_PARTS} are read.")
        xml = [part for part in parts if part.filename.endswith((".xml", ".rels"))]
        _check_size("The document", sum(part.file_size for part in parts), memory // 2)
        _check_size("The document's text", sum(part.file_size for part in xml), memory // 4)
        for part in xml:
            with package.open(part) as file:
                head = file.read(_HEAD).replace(b"\0", b"")
            if b"<!DOCTYPE" in head or b"<!ENTITY" in head:  # part 2, 8.2.5.2: there are none
                raise Unreadable("The document declares XML entities, which no Office document may.")
            if part.filename == "_rels/.rels" and _STRICT in head:
                raise Unsupported("The document is saved as Strict Open XML; save it in the usual variant.")


@contextlib.contextmanager
def damaged(what: str) -> Iterator[None]:
    """Takes a library's error for the document's fault: it raises whatever a broken document makes it stumble on.

    Raises:
        Unreadable: In the place of an error.
    """
    try:
        yield
    except (Refusal, MemoryError, RecursionError):
        raise
    except etree.XMLSyntaxError as error:
        if error.code == _NO_MEMORY:
            raise MemoryError from error
        if error.code == _RESOURCE_LIMIT:
            raise Unreadable(f"{what} is nested too deeply, or a text in it is too long.") from error
        raise Unreadable(f"{what} is damaged or truncated: its XML is broken.") from error
    except Exception as error:  # see above
        raise Unreadable(f"{what} is damaged or truncated: it cannot be read.") from error


def _check_size(what: str, size: int, most: int) -> None:
    # What a part says of its size binds: zipfile reads no more of it.
    if size > most:
        raise TooLarge(f"{what} unpacks to {size} bytes; at most {most} are read.")
