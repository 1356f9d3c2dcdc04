"""ZIP archives: each file becomes a document."""

import stat
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from ingest.parsing import archives, containers
from ingest.parsing.archives import Entry
from ingest.parsing.content import Part
from ingest.parsing.frames import Request
from ingest.parsing.office.ooxml import damage_is_unreadable
from ingest.parsing.refusals import Unreadable, Unsupported

_ENCRYPTED = 1


def recognises(path: Path, head: bytes) -> bool:
    """Return whether a file is a ZIP file but not a document package (Office, OpenDocument, EPUB)."""
    return containers.is_plain_zip(path, head)


def parse(request: Request) -> Iterator[Part]:
    """Yield the head, the files and a page that lists the files; see `archives.unpack`."""
    with damage_is_unreadable("The archive"):
        archive = zipfile.ZipFile(request.path)
    with archive:
        yield from archives.unpack(request, "application/zip", _entries(archive))


def _entries(archive: zipfile.ZipFile) -> Iterator[Entry]:
    for info in archive.infolist():
        if info.is_dir() or stat.S_ISLNK(info.external_attr >> 16):
            continue

        def opened(info: zipfile.ZipInfo = info) -> IO[bytes]:
            if info.flag_bits & _ENCRYPTED:
                raise Unreadable("The file is encrypted and needs a password.")
            try:
                return archive.open(info)
            except NotImplementedError as error:
                raise Unsupported("The compression method of the file is not supported.") from error
            except (zipfile.BadZipFile, OSError, ValueError) as error:
                raise Unreadable("The file is damaged: it cannot be unpacked.") from error

        yield Entry(info.filename, info.file_size, opened)
