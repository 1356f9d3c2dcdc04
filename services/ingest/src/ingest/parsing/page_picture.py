"""A page of a PDF as a picture, for models that see."""

import io

import pypdfium2 as pdfium  # type: ignore[import-untyped]  # ships no types

LONGEST_SIDE = 1536
"""Pixels; the models that are known scale down to about as much, and small print can still be read."""
LARGEST = 768 * 1024
"""Bytes; a picture is one message of the broker, which takes 1 MiB."""
_QUALITIES = (80, 60, 40)


def page_picture(document: pdfium.PdfDocument, number: int) -> bytes:
    """JPEG of a page, counted from 0; empty where it cannot be drawn, or not small enough.

    Whatever the page says of its size, the picture has `LONGEST_SIDE` pixels on its longer side.
    """
    try:
        page = document[number]
        try:
            scale = LONGEST_SIDE / max(page.get_size())
            image = page.render(scale=scale, may_draw_forms=False).to_pil().convert("RGB")
        finally:
            page.close()
    except (pdfium.PdfiumError, ArithmeticError, ValueError, OSError):
        return b""  # its text counts all the same
    for quality in _QUALITIES:
        buffer = io.BytesIO()
        image.save(buffer, "JPEG", quality=quality)
        if buffer.tell() <= LARGEST:
            return buffer.getvalue()
    return b""
