"""Decides which files are so simple that parsing them needs no child process.

A fork with its limits takes milliseconds, and reading a short text takes a tenth of one. No format library
processes such a text: it is decoded as UTF-8 and split into lines. Its length limits the time and the memory for
this. The worker's time-out applies as for every document.
"""

import re
from pathlib import Path

from ingest.parsing.frames import Request
from ingest.parsing.registry import FORMATS, format_named

LONGEST = 64 * 1024
"""Bytes."""
_PLAIN_TEXT = FORMATS[-1]
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0e-\x1f\x7f]")
"""The beginning of every container, including ZIP, has one of these."""


def is_short_text(request: Request) -> bool:
    """Return whether a file is short plain text, by its name and its content, in UTF-8."""
    if format_named(request.suffix.lower()) is not _PLAIN_TEXT:
        return False
    path = Path(request.path)
    try:
        if path.stat().st_size > LONGEST:
            return False
        text = path.read_bytes().decode()
    except (OSError, UnicodeDecodeError):
        return False  # the parser reports the error
    return _CONTROL.search(text) is None
