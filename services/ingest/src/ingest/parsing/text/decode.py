"""Decodes text in Unicode encodings and in common older encodings."""

import codecs
from pathlib import Path

import charset_normalizer

from ingest.parsing.frames import Request
from ingest.parsing.refusals import TooLarge, Unreadable

_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, whose mark is a prefix of this mark
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# Legacy encodings that still occur, the most likely first. Between equal matches, the first one wins.
_LEGACY = (
    "cp1252",
    "cp1254",
    "cp1250",
    "cp1251",
    "koi8_r",
    "cp1253",
    "cp1255",
    "cp1256",
    "cp932",
    "euc_jp",
    "gb18030",
    "big5",
    "cp949",
)
_CONTROLS = frozenset(range(32)) - frozenset(b"\t\n\r\f\x1b")
_MAX_CONTROL_SHARE = 0.02
"""Maximum fraction of control characters in text."""
_MAX_REPLACED_SHARE = 0.02
"""Maximum ratio of invalid bytes to characters outside ASCII in UTF-8."""
_PEEK = 64 * 1024
"""Bytes at the beginning that determine whether data is text."""
_MAX_BYTES_PER_CHARACTER = 4


def data_of(request: Request) -> bytes:
    """Return the content of a text file.

    Raises:
        TooLarge: The file has more bytes than the maximum number of characters can have.
    """
    path = Path(request.path)
    if path.stat().st_size > _MAX_BYTES_PER_CHARACTER * request.max_characters:
        raise TooLarge.characters(request.max_characters)
    return path.read_bytes()


def text_of(request: Request) -> str:
    """Return the decoded content of a text file.

    Raises:
        TooLarge: See `data_of`.
        Unreadable: See `decode`.
    """
    return decode(data_of(request))


def is_text(data: bytes) -> bool:
    """Return whether the beginning of the bytes looks like text in some encoding."""
    head = data[:_PEEK]
    if _encoding_by_mark(head) or _unmarked_utf16(head):
        return True
    if b"\0" in head:
        return False
    controls = sum(byte in _CONTROLS for byte in head)
    return controls <= _MAX_CONTROL_SHARE * len(head)


def decode(data: bytes) -> str:
    """Decode text by its byte order mark, as UTF-16 or UTF-8, or with the best matching legacy encoding.

    A few invalid bytes in UTF-8 become U+FFFD, which is better than a guess at another encoding.

    Raises:
        Unreadable: No encoding fits.
    """
    encoding = _encoding_by_mark(data) or _unmarked_utf16(data[:_PEEK])
    if encoding:
        return data.decode(encoding, "replace")
    text = data.decode("utf-8", "replace")
    if "\ufffd" not in text:
        return text
    non_ascii = sum(not character.isascii() for character in text)
    if text.count("\ufffd") <= _MAX_REPLACED_SHARE * non_ascii:
        return text
    return _legacy(data)


def _encoding_by_mark(data: bytes) -> str | None:
    """Return the encoding that a byte order mark declares, or None."""
    return next((encoding for mark, encoding in _BYTE_ORDER_MARKS if data.startswith(mark)), None)


def _unmarked_utf16(head: bytes) -> str | None:
    """Return the encoding of UTF-16 without a mark, or None. In mostly Latin text, every second byte is zero."""
    if not head or len(head) % 2:
        return None
    even, odd = head[0::2], head[1::2]
    zeros_even, zeros_odd = even.count(0) / len(even), odd.count(0) / len(odd)
    if zeros_odd > 0.4 and zeros_even < 0.05:
        return "utf-16-le"
    if zeros_even > 0.4 and zeros_odd < 0.05:
        return "utf-16-be"
    return None


def _legacy(data: bytes) -> str:
    matches = charset_normalizer.from_bytes(data, cp_isolation=list(_LEGACY))
    best = matches.best()
    if best is None:
        raise Unreadable("The encoding of the text is not recognised. Save the file as UTF-8.")
    equals = [match for match in matches if (match.chaos, match.coherence) == (best.chaos, best.coherence)]
    chosen = min(equals, key=lambda match: _LEGACY.index(match.encoding))
    return data.decode(chosen.encoding, "replace")
