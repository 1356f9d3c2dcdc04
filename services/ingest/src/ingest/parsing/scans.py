"""Pictures that may contain text: how to handle, open and encode them for text recognition."""

import enum
import io
import warnings

from PIL import Image, ImageOps, UnidentifiedImageError

from ingest.parsing.refusals import TooLarge, Unreadable

MAX_SIDE = 2000
"""Longest side in pixels of a picture for text recognition. This is A4 at 170 dots per inch."""
_MAX_PIXELS = 100_000_000
_MIN_SIZE = (200, 50)
"""Minimum width and height in pixels of a picture that may contain text. Smaller pictures count as symbols."""


class ScanMode(enum.StrEnum):
    """How to handle pictures of text.

    Attributes:
        READ: OCR reads them.
        MISSING: OCR is not installed. They become omissions, and a file that is a picture is refused.
        OFF: OCR is off for the index. As `MISSING`, but pictures in Office documents, and on PDF pages with
            text, are ignored.
    """

    READ = "read"
    MISSING = "missing"
    OFF = "off"

    @property
    def advice(self) -> str:
        """A sentence that tells users why pictures are not read; empty if pictures are read."""
        return _ADVICE[self]


_ADVICE = {
    ScanMode.READ: "",
    ScanMode.MISSING: " OCR is not installed. To install OCR, see docs/ingest.md, scans and pictures.",
    ScanMode.OFF: " OCR, which reads images, is off for this index.",
}


def opened(source: object) -> Image.Image:
    """Open a picture without decoding it.

    Raises:
        Unreadable: The picture is damaged.
        TooLarge: The picture has too many pixels.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # this function checks the size itself
            picture = Image.open(source)  # type: ignore[arg-type]  # Pillow accepts a path or a file
    except Image.DecompressionBombError as error:
        raise TooLarge("The picture has too many pixels. The limit is 100 million.") from error
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError) as error:
        raise Unreadable("The picture is damaged.") from error
    if picture.width * picture.height > _MAX_PIXELS:
        raise TooLarge(f"The picture has {picture.width} by {picture.height} pixels. The limit is 100 million.")
    return picture


def is_small(picture: Image.Image) -> bool:
    """Return whether a picture is too small to contain text."""
    return picture.width < _MIN_SIZE[0] or picture.height < _MIN_SIZE[1]


def encoded(picture: Image.Image) -> bytes:
    """Encode a picture for text recognition: upright, grey, of a limited size, as PNG.

    Raises:
        Unreadable: The picture is damaged.
    """
    try:
        upright = ImageOps.exif_transpose(picture)
        if upright.mode in ("RGBA", "LA", "PA", "P"):
            upright = upright.convert("RGBA")
            background = Image.new("RGBA", upright.size, "white")
            upright = Image.alpha_composite(background, upright)
        grey = upright.convert("L")
        grey.thumbnail((MAX_SIDE, MAX_SIDE))
        buffer = io.BytesIO()
        grey.save(buffer, "PNG", compress_level=1)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise Unreadable("The picture is damaged.") from error
    return buffer.getvalue()
