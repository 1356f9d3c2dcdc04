"""Finds images on PDF pages that also have text, for example charts, tables or letters inserted as images."""

import contextlib
import ctypes
import hashlib
from collections.abc import Iterator

import pypdfium2 as pdfium  # type: ignore[import-untyped]  # ships no types
import pypdfium2.raw as raw  # type: ignore[import-untyped]  # ships no types

from ingest.parsing.content import Omission, Scan
from ingest.parsing.refusals import Unreadable
from ingest.parsing.scans import MAX_SIDE, ScanMode, encoded

_MIN_READ_SHARE = 1 / 10
"""Images that cover a smaller fraction of the page are not read."""
_MIN_REPORTED_SHARE = 1 / 50
"""Images that cover a smaller fraction of the page count as symbols, which are ignored."""
_MAX_LETTERS = 20
"""Maximum number of letters over an image that is read. With more, it is a background or a scan with a text layer.
"""
_MAX_IMAGES = 500
"""Maximum number of different images of a document that are read. Small images do not count."""
_MAX_OBJECTS = 1000
"""Maximum number of objects of a page that are examined, of any kind."""

Box = tuple[float, float, float, float]
"""Left, bottom, right and top on the page."""


class PageImages:
    """Finds the images on a document's pages. An image that occurs several times is found once.

    Args:
        document: The document.
        scans: How to handle images of text.
    """

    def __init__(self, document: pdfium.PdfDocument, scans: ScanMode) -> None:
        self._document = document
        self._scans = scans
        self._seen: set[bytes] = set()
        self._count = 0
        self._is_limit_exceeded = False

    def scans(self, number: int) -> Iterator[Scan | Omission]:
        """Yield the large images of a page that has text, as drawn on the page, and an omission for unread images.

        Args:
            number: The number of the page, from 0.
        """
        if self._scans is ScanMode.OFF or self._is_limit_exceeded:
            return
        small = left_out = 0
        large: list[Box] = []
        page = self._document[number]
        try:
            width, height = page.get_size()
            with contextlib.suppress(pdfium.PdfiumError):
                for box in self._new(page):
                    share = _area(box) / (width * height)
                    if share < _MIN_READ_SHARE:
                        small += share >= _MIN_REPORTED_SHARE
                    elif self._count < _MAX_IMAGES:
                        large.append(box)
                        self._count += 1
                    else:
                        self._is_limit_exceeded = True
                for box, _ in _images(page, _MAX_OBJECTS, raw.FPDFPage_CountObjects(page)):
                    left_out += _area(box) / (width * height) >= _MIN_READ_SHARE
            if self._scans is ScanMode.READ:
                yield from _cut_out(page, number, large)
        finally:
            page.close()
        unread = small if self._scans is ScanMode.READ else small + len(large)
        if unread:
            subject = "An image on the page was" if unread == 1 else f"{unread} images on the page were"
            reason = " too small to be read." if self._scans is ScanMode.READ else f" not read.{self._scans.advice}"
            yield Omission("Unreadable", subject + reason, number + 1)
        if left_out:
            limit = f"Only the first {_MAX_OBJECTS} objects of a page are searched for images."
            yield Omission("TooLarge", f"Large images on the page were not read: {left_out}. {limit}", number + 1)
        if self._is_limit_exceeded:
            limit = f"The limit is {_MAX_IMAGES} images of a document."
            message = f"Further images on this page and on later pages were not read. {limit}"
            yield Omission("TooLarge", message, number + 1)

    def _new(self, page: pdfium.PdfPage) -> Iterator[Box]:
        """Yield the boxes of images that were not found before and have little text over them."""
        text = page.get_textpage()
        try:
            for box, image in _images(page, 0, min(raw.FPDFPage_CountObjects(page), _MAX_OBJECTS)):
                digest = _digest(image)
                letters = "".join(text.get_text_bounded(*box).split())
                if digest not in self._seen and len(letters) <= _MAX_LETTERS:
                    self._seen.add(digest)
                    yield box
        finally:
            text.close()


def _images(page: pdfium.PdfPage, start: int, end: int) -> Iterator[tuple[Box, object]]:
    """Yield the images among the page's objects from ``start`` up to but excluding ``end``, each after its box."""
    page_box: Box = page.get_bbox()
    for index in range(start, end):
        item = raw.FPDFPage_GetObject(page, index)
        if raw.FPDFPageObj_GetType(item) == raw.FPDF_PAGEOBJ_IMAGE:
            yield _clipped_box(item, page_box), item


def _area(box: Box) -> float:
    return (box[2] - box[0]) * (box[3] - box[1])


def _clipped_box(image: object, page: Box) -> Box:
    """Return the box of an image, clipped to the page."""
    edges = tuple(ctypes.c_float() for _ in range(4))
    raw.FPDFPageObj_GetBounds(image, *edges)
    left, bottom = (max(edge.value, minimum) for edge, minimum in zip(edges[:2], page[:2], strict=True))
    right, top = (min(edge.value, maximum) for edge, maximum in zip(edges[2:], page[2:], strict=True))
    return left, bottom, max(left, right), max(bottom, top)


def _digest(image: object) -> bytes:
    size = raw.FPDFImageObj_GetImageDataRaw(image, None, 0)
    buffer = ctypes.create_string_buffer(size)
    raw.FPDFImageObj_GetImageDataRaw(image, buffer, size)
    return hashlib.blake2b(buffer.raw, digest_size=16).digest()


def _cut_out(page: pdfium.PdfPage, number: int, boxes: list[Box]) -> Iterator[Scan | Omission]:
    """Yield the parts of the drawn page that contain the images; an omission if the page cannot be drawn."""
    if not boxes:
        return
    try:
        bitmap = page.render(scale=MAX_SIDE / max(page.get_size()), may_draw_forms=False)
        drawn, place = bitmap.to_pil().convert("RGB"), bitmap.get_posconv(page)
        for index, (left, bottom, right, top) in enumerate(boxes, 1):
            corners = [place.to_bitmap(left, bottom), place.to_bitmap(right, top)]
            xs, ys = sorted(x for x, _ in corners), sorted(y for _, y in corners)
            part = drawn.crop((max(xs[0], 0), max(ys[0], 0), min(xs[1], drawn.width), min(ys[1], drawn.height)))
            yield Scan(number + 1, encoded(part), f"image {index}")
    except (pdfium.PdfiumError, ArithmeticError, ValueError, OSError, Unreadable):
        yield Omission("Unreadable", "An image on the page was not read: the page cannot be drawn.", number + 1)
