"""Tar archives, also compressed with gzip, bzip2 or xz: each file becomes a document."""

import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from ingest.parsing import archives
from ingest.parsing.archives import Entry
from ingest.parsing.content import Part
from ingest.parsing.frames import Request
from ingest.parsing.office.ooxml import damage_is_unreadable
from ingest.parsing.refusals import Unreadable

_COMPRESSED = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ\0")
_MAGIC = slice(257, 262)


def recognises(path: Path, head: bytes) -> bool:
    """Return whether a file is a tar archive: plain, with the signature of POSIX.1-1988 (ustar), or compressed."""
    return head[_MAGIC] == b"ustar" or (head.startswith(_COMPRESSED) and tarfile.is_tarfile(path))


def parse(request: Request) -> Iterator[Part]:
    """Yield the head, the files and a page that lists the files; see `archives.unpack`."""
    with damage_is_unreadable("The archive"):
        archive = tarfile.open(request.path)  # noqa: SIM115  # closed below
    with archive:
        yield from archives.unpack(request, "application/x-tar", _entries(archive))


def _entries(archive: tarfile.TarFile) -> Iterator[Entry]:
    while True:
        with damage_is_unreadable("The archive"):
            info = archive.next()
        if info is None:
            return
        # Otherwise, the library would keep every entry in memory.
        archive.members = []  # type: ignore[attr-defined]  # missing in the type stubs
        if not info.isfile():
            continue

        def open_file(info: tarfile.TarInfo = info) -> IO[bytes]:
            file = archive.extractfile(info)
            if file is None:
                raise Unreadable("The file is damaged: it cannot be unpacked.")
            return file

        yield Entry(info.name, info.size, open_file)
