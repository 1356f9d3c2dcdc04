"""Decides which files are simple enough to be parsed without a fork, or even without the child process.

A fork with its limits takes milliseconds, but reading a short text takes only a tenth of a millisecond. Reading it
without a fork is safe, because no format library processes the text: this package decodes it as UTF-8 and splits it
into lines, and the maximum length limits time and memory. In the child process, the worker's time-out applies as
for every document.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from ingest.parsing.content import Part
from ingest.parsing.formats import plain
from ingest.parsing.frames import Request
from ingest.parsing.registry import FORMATS, format_by_suffix
from ingest.parsing.text.decode import decode

MAX_BYTES = 64 * 1024
"""Maximum length in bytes of a text that is parsed without a fork."""
_PLAIN_TEXT = FORMATS[-1]
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0e-\x1f\x7f]")
"""Control characters. The beginning of every container format, including ZIP, has at least one of them."""
_SIGNATURE = re.compile(rb"%PDF-|%!PS|<svg|ustar|RIFF")
"""Signatures of formats that may have no control characters. `ingest.parsing.detect` refuses a text file that
begins as one of these formats.
"""


def is_short_text(request: Request) -> bool:
    """Return whether a file is short plain text in UTF-8, by its name and its content."""
    if format_by_suffix(request.suffix.lower()) is not _PLAIN_TEXT:
        return False
    path = Path(request.path)
    try:
        return path.stat().st_size <= MAX_BYTES and _is_plain(path.read_bytes())
    except OSError:
        return False  # the parser reports the error


def parts(content: bytes, suffix: str, max_characters: int) -> Sequence[Part] | None:
    """Return the parts that the parsing child would yield for a short plain text; None for all other documents.

    Args:
        content: The bytes of the file.
        suffix: The suffix of the file's name.
        max_characters: Maximum number of characters. The parsing child refuses a longer text. Here it limits the
            bytes, because a text has at least as many bytes as characters.
    """
    if format_by_suffix(suffix.lower()) is not _PLAIN_TEXT or not 0 < len(content) <= min(
        MAX_BYTES, max_characters
    ):
        return None
    return plain.parts(decode(content), suffix) if _is_plain(content) and not _SIGNATURE.search(content) else None


def _is_plain(content: bytes) -> bool:
    try:
        return _CONTROL.search(content.decode()) is None
    except UnicodeDecodeError:
        return False
