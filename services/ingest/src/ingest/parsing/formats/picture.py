"""Pictures (PNG, JPEG, TIFF, WebP) for text recognition. Each picture of a TIFF is a page."""

from collections.abc import Iterator
from pathlib import Path

from ingest.parsing.content import Head, Part, Scan
from ingest.parsing.frames import Request
from ingest.parsing.office.ooxml import damage_is_unreadable
from ingest.parsing.refusals import TooLarge, Unsupported
from ingest.parsing.scans import ScanMode, encoded, opened

_TYPES = {"PNG": "image/png", "JPEG": "image/jpeg", "TIFF": "image/tiff", "WEBP": "image/webp"}


def recognises(_path: Path, head: bytes) -> bool:
    """Return whether a file begins with the signature of a picture format."""
    return head.startswith((b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"II*\x00", b"MM\x00*")) or (
        head[:4] == b"RIFF" and head[8:12] == b"WEBP"
    )


def parse(request: Request) -> Iterator[Part]:
    """Yield the head, and a `Scan` for each picture in the file.

    Raises:
        Unsupported: OCR is off or not installed.
        Unreadable: The file is damaged.
        TooLarge: The file has too many pictures or too many pixels.
    """
    scans = ScanMode(request.scans)
    if scans is not ScanMode.READ:
        raise Unsupported(f"The file is a picture, whose text is not read.{scans.advice}")
    with opened(Path(request.path)) as picture:
        with damage_is_unreadable("The file"):
            count = getattr(picture, "n_frames", 1) if picture.format == "TIFF" else 1
        if count > request.max_pages:
            raise TooLarge(f"The file has {count} pictures. The limit is {request.max_pages} pictures.")
        yield Head(_TYPES.get(picture.format or "", "image/png"), count)
        for number in range(count):
            if count > 1:
                with damage_is_unreadable("The file"):
                    picture.seek(number)
            yield Scan(number + 1, encoded(picture))
