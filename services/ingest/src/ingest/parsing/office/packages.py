"""ZIP packages of XML (OpenDocument, EPUB): their parts, within bounds."""

import contextlib
import zipfile
from collections.abc import Iterator
from pathlib import Path

from lxml import etree  # type: ignore[import-untyped]  # ships no types

from ingest.parsing.office.ooxml import damaged
from ingest.parsing.refusals import TooLarge, Unreadable

_ENCRYPTED = 1
_TREE = 16
"""Times its bytes that XML takes as objects, at most."""


class Package:
    """The parts of a package.

    Args:
        archive: The ZIP file.
        memory: Bytes that the parser may have.
    """

    def __init__(self, archive: zipfile.ZipFile, memory: int) -> None:
        self._archive = archive
        self._left = memory // _TREE

    def has(self, name: str) -> bool:
        """Return whether there is a part."""
        return name in self._archive.NameToInfo

    def read(self, name: str) -> bytes:
        """Return a part.

        Raises:
            Unreadable: It is missing, damaged or encrypted.
            TooLarge: All that was read is more than the memory has room for.
        """
        info = self._archive.NameToInfo.get(name)
        if info is None:
            raise Unreadable(f"The document is damaged: its part {name} is missing.")
        if info.flag_bits & _ENCRYPTED:
            raise Unreadable("The document is encrypted: it opens with a password only.")
        self._left -= info.file_size
        if self._left < 0:
            raise TooLarge("The document's text unpacks to more bytes than there is memory for.")
        return self._archive.read(info)

    def xml(self, name: str) -> etree._Element:
        """Return the root of a part's XML; entities are not followed."""
        parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False)
        root = etree.fromstring(self.read(name), parser)
        if root is None:
            raise Unreadable(f"The document is damaged: its part {name} is empty.")
        return root


@contextlib.contextmanager
def opened(path: Path, memory: int) -> Iterator[Package]:
    """Open a package; what goes wrong within is the document's fault.

    Raises:
        Unreadable: It is damaged.
    """
    with damaged("The document"), zipfile.ZipFile(path) as archive:
        yield Package(archive, memory)
