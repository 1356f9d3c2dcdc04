"""PDF: text by page, with headings by font size."""

import contextlib
import ctypes
import io
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pypdfium2 as pdfium  # type: ignore[import-untyped]  # ships no types
import pypdfium2.raw as raw  # type: ignore[import-untyped]  # ships no types
from PIL import Image

from ingest.parsing import forms
from ingest.parsing.content import Head, Omission, Page, Part, Scan
from ingest.parsing.frames import Request
from ingest.parsing.page_images import PageImages
from ingest.parsing.refusals import TooLarge, Unreadable
from ingest.parsing.scans import MAX_SIDE as SCANNED_SIDE
from ingest.parsing.scans import ScanMode, encoded
from ingest.parsing.text.clean import flat, language_tag
from ingest.parsing.text.layout import Style
from ingest.parsing.text.lines import HYPHEN, Line
from ingest.parsing.text.outline import Outline

_TAIL = 4096
"""Number of bytes at the end of the file that are searched for the end marker."""
_SAMPLE_PAGES = 16
"""Maximum number of pages that determine the style of the document."""
_PASSWORD_ERROR = 4  # FPDF_ERR_PASSWORD
# pdfium ends a line with a line break, or with ``HYPHEN`` or ``\x02`` in place of a hyphen.
_PIECE = re.compile(f"[^\n{HYPHEN}\x02]+[{HYPHEN}\x02]?")
_MARKER = re.compile(r"\s*(?:[^\w\s]|\(?(?:\d{1,3}|[A-Za-z]|[ivxIVX]{1,4})[.)])")
"""The marker or the number of a list item. Such a marker is not a cell of a table."""
_BOLD = (b"bold", b"black", b"heavy", b"semibold")
_COLUMN_GAP = 1.2
"""Minimum gap between columns, as a multiple of the font size. A space is a quarter of the font size wide."""
_NARROW_COLUMN_GAP = 0.5
"""Minimum gap between narrow columns, as a multiple of the font size. Gaps in justified lines can be as wide."""

PICTURE_SIDE = 1536
"""Longest side of a picture in pixels. Small print is readable, and many models scale pictures to about this size.
"""
MAX_PICTURE_BYTES = 768 * 1024
"""Maximum bytes of a picture. A picture is one message of the broker, whose limit is 1 MiB."""
_QUALITIES = (80, 60, 40)


def recognises(_path: Path, head: bytes) -> bool:
    """Return whether the beginning contains the header (ISO 32000-1, annex H, note 13: within 1024 bytes)."""
    return b"%PDF-" in head[:1024]


def parse(request: Request) -> Iterator[Part]:
    """Yield the head and the pages of a PDF. The first ``max_pictures`` pages have a picture.

    Raises:
        Unreadable: The PDF is encrypted, truncated or damaged, or has neither text nor images for OCR.
        TooLarge: The PDF has more pages than ``max_pages``.
    """
    path, max_pages, max_pictures = Path(request.path), request.max_pages, request.max_pictures
    scans = ScanMode(request.scans)
    _check_end(path)
    with contextlib.closing(_open(path)) as document:
        document.init_forms()  # required before a page is loaded; does nothing without forms
        count = len(document)
        if count > max_pages:
            raise TooLarge(f"The document has {count} pages. The limit is {max_pages} pages.")
        yield Head("application/pdf", count, _language(document))
        sample = {number: lines_of(document, number) for number in _spread(count, _SAMPLE_PAGES)}
        style = Style.of(sample)
        outline, images = Outline(), PageImages(document, scans)
        is_empty, has_scans = True, False
        for number in range(count):
            lines = sample.pop(number, None) or lines_of(document, number)
            style.fill(outline, lines, number)
            fields = list(forms.fields(document, number))
            outline.block("\n".join(field for field in fields if isinstance(field, str)), whole=True)
            sections = outline.end_page()
            is_empty = is_empty and not sections
            yield Page(number + 1, sections, page_picture(document, number) if number < max_pictures else b"")
            yield from (field for field in fields if isinstance(field, Omission))
            if sections:
                yield from images.scans(number)
            elif _has_image(document, number):
                has_scans = True
                yield _scan(document, number, scans)
        if is_empty and not (has_scans and scans is ScanMode.READ):
            raise Unreadable(
                f"The document has no text: its pages are scanned images.{scans.advice}"
                if has_scans
                else "The document has no text."
            )


def _scan(document: pdfium.PdfDocument, number: int, scans: ScanMode) -> Scan | Omission:
    """Return the scan of a page that is an image; an omission without OCR or if it cannot be drawn."""
    image = b""
    if scans is ScanMode.READ:
        with contextlib.suppress(pdfium.PdfiumError, ArithmeticError, ValueError, OSError, Unreadable):
            image = encoded(_drawn(document, number, SCANNED_SIDE))
    if image:
        return Scan(number + 1, image)
    message = f"The page has no text: it is a scanned image.{scans.advice}"
    return Omission("Unreadable", message, number + 1)


def _check_end(path: Path) -> None:
    """Check that the PDF ends with %%EOF (ISO 32000-1, 7.5.5); pdfium may accept a truncated file as complete."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - _TAIL))
        if b"%%EOF" not in file.read():
            raise Unreadable("The PDF is truncated: its end is missing.")


def _open(path: Path) -> pdfium.PdfDocument:
    try:
        return pdfium.PdfDocument(path)
    except pdfium.PdfiumError as error:
        if error.err_code == _PASSWORD_ERROR:
            raise Unreadable("The PDF is encrypted and needs a password.") from error
        raise Unreadable("The PDF is damaged: it cannot be opened.") from error


def _language(document: pdfium.PdfDocument) -> str:
    buffer = ctypes.create_string_buffer(128)
    length = raw.FPDFCatalog_GetLanguage(document, ctypes.cast(buffer, ctypes.POINTER(raw.FPDF_WCHAR)), len(buffer))
    if not 2 < length <= len(buffer):
        return ""
    return language_tag(buffer.raw[: length - 2].decode("utf-16-le", "ignore").strip())


def lines_of(document: pdfium.PdfDocument, number: int) -> list[Line]:
    """Return the lines of a page, counted from 0, in the order of the page's content stream.

    Raises:
        Unreadable: The page cannot be read.
    """
    try:
        page = document[number]
        text_page = page.get_textpage()
    except pdfium.PdfiumError as error:
        raise Unreadable(f"The PDF is damaged: page {number + 1} cannot be read.") from error
    try:
        count = raw.FPDFText_CountChars(text_page)
        text = "".join(chr(raw.FPDFText_GetUnicode(text_page, index)) for index in range(count))
        return [line for match in _PIECE.finditer(text) for line in _cells(text_page, match[0], match.start())]
    finally:
        text_page.close()
        page.close()


def _cells(text_page: pdfium.PdfTextPage, piece: str, start: int) -> Iterator[Line]:
    """Yield a piece of the page's text as one line, or each of its cells if it may be a row of a table.

    Args:
        text_page: The text of the page.
        piece: The text up to the end of a line.
        start: Index of the piece's first character.
    """
    hyphenated = piece[-1] in (HYPHEN, "\x02")
    piece = piece.rstrip(f"{HYPHEN}\x02")
    if not piece.strip():
        return
    line = _line(text_page, piece, start)
    for begin, end in _split_at_gaps(text_page, piece, start, _COLUMN_GAP * line.size):
        text = _text(piece[begin:end])
        if not text:
            continue
        spans = list(_split_at_gaps(text_page, piece[begin:end], start + begin, _NARROW_COLUMN_GAP * line.size))
        parts = [
            replace(_line(text_page, piece[begin + first : begin + last], start + begin + first), text=part)
            for first, last in (spans if len(spans) > 1 else ())
            if (part := _text(piece[begin + first : begin + last]))
        ]
        cell = _line(text_page, piece[begin:end], start + begin)
        yield replace(cell, text=text + HYPHEN * (hyphenated and end == len(piece)), parts=tuple(parts))


def _line(text_page: pdfium.PdfTextPage, piece: str, start: int) -> Line:
    """Return a line with the position and the style of a piece of text, but without the text."""
    visible = [index for index, character in enumerate(piece) if not character.isspace()]
    first, last = start + visible[0], start + visible[-1]
    x, y = ctypes.c_double(), ctypes.c_double()
    raw.FPDFText_GetCharOrigin(text_page, first, x, y)
    right = max(_box(text_page, last)[1], x.value)
    matrix = raw.FS_MATRIX()
    raw.FPDFText_GetMatrix(text_page, first, matrix)
    # The font size is in text space, which the page may scale.
    size = raw.FPDFText_GetFontSize(text_page, first) * (math.hypot(matrix.c, matrix.d) or 1.0)
    return Line("", x.value, right, y.value, size, _is_bold(text_page, first))


def _is_bold(text_page: pdfium.PdfTextPage, index: int) -> bool:
    """Return whether a character is bold, by the name of its font, because the weight is often missing."""
    name, flags = ctypes.create_string_buffer(64), ctypes.c_int()
    length = raw.FPDFText_GetFontInfo(text_page, index, name, len(name), flags)
    return length > 0 and any(word in name.value.lower() for word in _BOLD)


def _split_at_gaps(
    text_page: pdfium.PdfTextPage, piece: str, start: int, min_gap: float
) -> Iterator[tuple[int, int]]:
    """Yield the spans of a line that are separated by gaps wider than ``min_gap``."""
    begin = 0
    for gap in re.finditer(r"\s+", piece.rstrip()):
        before, after = start + gap.start() - 1, start + gap.end()
        if not gap.start() or _MARKER.fullmatch(piece[begin : gap.start()]):
            continue
        if _box(text_page, after)[0] - _box(text_page, before)[1] > min_gap:
            if piece[begin : gap.start()].strip():
                yield begin, gap.start()
            begin = gap.end()
    if piece[begin:].strip():
        yield begin, len(piece)


def _box(text_page: pdfium.PdfTextPage, index: int) -> tuple[float, float]:
    """Return the left and the right edge of a character."""
    left, right, bottom, top = (ctypes.c_double() for _ in range(4))
    raw.FPDFText_GetCharBox(text_page, index, left, right, bottom, top)
    return left.value, right.value


def _text(piece: str) -> str:
    # pdfium may return a character outside the basic multilingual plane as two surrogates.
    return flat(piece.encode("utf-16", "surrogatepass").decode("utf-16", "ignore"))


def _has_image(document: pdfium.PdfDocument, number: int) -> bool:
    page = document[number]
    try:
        return next(iter(page.get_objects(filter=[raw.FPDF_PAGEOBJ_IMAGE], max_depth=3)), None) is not None
    finally:
        page.close()


def _spread(count: int, max_pages: int) -> range:
    """Return the numbers of at most ``max_pages`` pages, evenly spaced."""
    return range(0, count, max(1, math.ceil(count / max_pages)))


def page_picture(document: pdfium.PdfDocument, number: int) -> bytes:
    """Return a page, counted from 0, as JPEG; empty if the page cannot be drawn or the picture is too large.

    The picture has `PICTURE_SIDE` pixels on its longer side, for every page size.
    """
    try:
        image = _drawn(document, number, PICTURE_SIDE)
    except (pdfium.PdfiumError, ArithmeticError, ValueError, OSError):
        return b""  # the page is still read as text
    for quality in _QUALITIES:
        buffer = io.BytesIO()
        image.save(buffer, "JPEG", quality=quality)
        if buffer.tell() <= MAX_PICTURE_BYTES:
            return buffer.getvalue()
    return b""


def _drawn(document: pdfium.PdfDocument, number: int, side: int) -> Image.Image:
    """Draw a page with ``side`` pixels on its longer side."""
    page = document[number]
    try:
        drawn: Image.Image = page.render(scale=side / max(page.get_size()), may_draw_forms=False).to_pil()
        return drawn.convert("RGB")
    finally:
        page.close()
