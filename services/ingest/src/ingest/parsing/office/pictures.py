"""Finds the pictures of Office documents that may contain text."""

import io
from collections.abc import Iterator
from typing import Any

from docx.opc.constants import RELATIONSHIP_TYPE

from ingest.parsing.content import Omission, Scan
from ingest.parsing.refusals import Refusal, TooLarge
from ingest.parsing.scans import ScanMode, encoded, is_small, opened

_MAX_BYTES = 64 * 1024**2
"""Maximum bytes of a picture that is read."""
_MAX_COUNT = 500
"""Maximum number of different pictures of a document that are read. Small and damaged pictures do not count."""


class DocumentPictures:
    """Finds the pictures of a document. A picture that occurs several times is found once.

    Args:
        mode: How to handle the pictures.
    """

    def __init__(self, mode: ScanMode) -> None:
        self._mode = mode
        self._seen: set[str] = set()
        self._count = 0

    def scans(self, part: Any, number: int) -> Iterator[Scan | Omission]:
        """Yield the new pictures of a part of the package.

        If OCR is not installed or a limit is exceeded, yield an omission for the pictures that are not read.

        Args:
            part: A document or a slide.
            number: The number of the page of the part, or 0.
        """
        if self._mode is ScanMode.OFF:
            return
        unread = left_out = 0
        for name, content in self._new(part):
            try:
                with opened(io.BytesIO(content)) as picture:
                    if is_small(picture):
                        continue
                    if self._mode is ScanMode.MISSING:
                        unread += 1
                    elif self._count >= _MAX_COUNT or len(content) > _MAX_BYTES:
                        left_out += 1
                    else:
                        scan = Scan(number, encoded(picture), name)
                        self._count += 1
                        yield scan
            except TooLarge:
                left_out += 1
            except Refusal:
                continue  # a vector drawing, or a damaged picture that viewers cannot show either
        if unread:
            yield Omission("Unreadable", f"{_not_read(unread)}{self._mode.advice}", number)
        if left_out:
            size = f"{_MAX_BYTES // 1024**2} MiB and 100 million pixels for each picture"
            limits = f"{_MAX_COUNT} pictures of a document, and {size}"
            yield Omission("TooLarge", f"{_not_read(left_out)} The limits are {limits}.", number)

    def _new(self, part: Any) -> Iterator[tuple[str, bytes]]:
        """Yield the names and the contents of the pictures that were not found before."""
        for relation in part.rels.values():
            if relation.is_external or relation.reltype != RELATIONSHIP_TYPE.IMAGE:
                continue
            image = relation.target_part
            name = str(image.partname).lstrip("/")
            if name not in self._seen:
                self._seen.add(name)
                yield name, image.blob


def _not_read(count: int) -> str:
    return "A picture was not read." if count == 1 else f"{count} pictures were not read."
