"""Finds the pictures of Office documents that may contain text."""

import io
from collections.abc import Iterator
from typing import Any

from docx.opc.constants import RELATIONSHIP_TYPE

from ingest.parsing.content import Omission, Scan
from ingest.parsing.refusals import Refusal
from ingest.parsing.scans import Scans, encoded, is_small, opened

_MAX_BYTES = 64 * 1024**2
"""Maximum bytes of a picture that is read."""
_MAX_COUNT = 500
"""Maximum number of different pictures of a document that are read."""


def scans(part: Any, number: int, mode: Scans, seen: set[str]) -> Iterator[Scan | Omission]:
    """Yield the new pictures of a part of a package; an omission if OCR is not installed, or for a limit.

    Args:
        part: A document or a slide.
        number: The number of the page of the part, or 0.
        mode: How to handle the pictures.
        seen: Names of the known pictures. The function adds the names of new pictures.
    """
    unread = left_out = 0
    for name, content in _images(part, seen):
        if mode is Scans.OFF:
            continue
        try:
            with opened(io.BytesIO(content)) as picture:
                if is_small(picture):
                    continue
                if mode is Scans.MISSING:
                    unread += 1
                elif len(seen) > _MAX_COUNT or len(content) > _MAX_BYTES:
                    left_out += 1
                else:
                    yield Scan(number, encoded(picture), name)
        except Refusal:
            continue  # a vector drawing, or a damaged picture that viewers cannot show either
    if unread:
        subject = "A picture was" if unread == 1 else f"{unread} pictures were"
        yield Omission("Unreadable", f"{subject} not read.{mode.advice}", number)
    if left_out:
        subject = "A picture was" if left_out == 1 else f"{left_out} pictures were"
        limits = (
            f"The limits are {_MAX_COUNT} pictures of a document and {_MAX_BYTES // 1024**2} MiB for each picture."
        )
        yield Omission("TooLarge", f"{subject} not read. {limits}", number)


def _images(part: Any, seen: set[str]) -> Iterator[tuple[str, bytes]]:
    for relation in part.rels.values():
        if relation.is_external or relation.reltype != RELATIONSHIP_TYPE.IMAGE:
            continue
        image = relation.target_part
        name = str(image.partname).lstrip("/")
        if name not in seen:
            seen.add(name)
            yield name, image.blob
