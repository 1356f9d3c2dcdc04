"""Which files are so simple that reading them needs no process of its own.

A fork with its limits takes milliseconds, reading a short text takes a tenth of one. What is told here to be short
text runs through no library that reads a format: it is decoded as UTF-8 and split at its lines, in time and memory
that its length bounds. The worker's time-out holds as for every document.
"""

import re
from pathlib import Path

from ingest.parsing.frames import Request
from ingest.parsing.registry import FORMATS, format_named

LONGEST = 64 * 1024
"""Bytes."""
_PLAIN_TEXT = FORMATS[-1]
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0e-\x1f\x7f]")
"""No container has a beginning without one of these, ZIP included."""


def is_short_text(request: Request) -> bool:
    """Return whether a file is plain text by its name and by its content, in UTF-8, and short."""
    if format_named(request.suffix.lower()) is not _PLAIN_TEXT:
        return False
    path = Path(request.path)
    try:
        if path.stat().st_size > LONGEST:
            return False
        text = path.read_bytes().decode()
    except (OSError, UnicodeDecodeError):
        return False  # what is wrong with it is told by who reads it
    return _CONTROL.search(text) is None
