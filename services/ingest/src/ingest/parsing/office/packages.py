"""Reads the parts of ZIP packages of XML (OpenDocument, EPUB), within limits."""

import contextlib
import zipfile
from collections.abc import Iterator
from pathlib import Path

from lxml import etree  # type: ignore[import-untyped]  # ships no types

from ingest.parsing.office.ooxml import damage_is_unreadable
from ingest.parsing.refusals import TooLarge, Unreadable

_ENCRYPTED = 1
_XML_MEMORY_RATIO = 16
"""Upper bound of the ratio between the memory of parsed XML and its bytes."""


class Package:
    """The parts of a package.

    Args:
        archive: The ZIP file.
        memory: The parser's memory limit in bytes.
    """

    def __init__(self, archive: zipfile.ZipFile, memory: int) -> None:
        self._archive = archive
        self._remaining = memory // _XML_MEMORY_RATIO

    def has(self, name: str) -> bool:
        """Return whether the package has a part."""
        return name in self._archive.NameToInfo

    def read(self, name: str) -> bytes:
        """Return the content of a part.

        Raises:
            Unreadable: The part is missing, damaged or encrypted.
            TooLarge: The parts that were read exceed the memory limit.
        """
        info = self._archive.NameToInfo.get(name)
        if info is None:
            raise Unreadable(f"The document is damaged: its part {name} is missing.")
        if info.flag_bits & _ENCRYPTED:
            raise Unreadable("The document is encrypted and needs a password.")
        self._remaining -= info.file_size
        if self._remaining < 0:
            raise TooLarge("The text of the document is too large for the memory limit when unpacked.")
        return self._archive.read(info)

    def xml(self, name: str) -> etree._Element:
        """Return the root of a part's XML, without resolving entities.

        Raises:
            Unreadable, TooLarge: See `read`.
            lxml.etree.XMLSyntaxError: The XML is broken.
        """
        parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False)
        root = etree.fromstring(self.read(name), parser)
        if root is None:
            raise Unreadable(f"The document is damaged: its part {name} is empty.")
        return root


@contextlib.contextmanager
def opened(path: Path, memory: int) -> Iterator[Package]:
    """Open a package. Exceptions within the block are converted to `Unreadable`; see `damage_is_unreadable`.

    Raises:
        Unreadable: The package is damaged.
    """
    with damage_is_unreadable("The document"), zipfile.ZipFile(path) as archive:
        yield Package(archive, memory)
