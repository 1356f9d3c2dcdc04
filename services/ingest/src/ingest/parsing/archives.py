"""Unpacks archives within limits on the number, the size and the compression ratio of the files."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from ingest.parsing.content import Head, Member, Omission, Page, Part
from ingest.parsing.frames import Request
from ingest.parsing.refusals import Refusal, TooLarge, Unreadable
from ingest.parsing.text.names import MemberNames
from ingest.parsing.text.outline import Outline

_MAX_ENTRIES = 100_000
_MAX_RATIO = 100
"""Maximum ratio of the unpacked size to the size of the archive."""
_UNCHECKED_BYTES = 16 * 1024 * 1024
"""The compression ratio of an archive is limited only if it unpacks to more bytes than this."""
_MEMORY_SHARE = 8
"""The size of one file is limited to the memory limit divided by this, because the transfer copies the file."""
_SYSTEM_FILES = ("__macosx", "thumbs.db", "desktop.ini")


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of an archive.

    Attributes:
        name: The name in the archive.
        size: The unpacked size that the archive declares, in bytes.
        open: Opens the file; raises `Refusal` if the file cannot be read.
    """

    name: str
    size: int
    open: Callable[[], IO[bytes]]


def unpack(request: Request, media_type: str, entries: Iterator[Entry]) -> Iterator[Part]:
    """Yield the head of an archive, its files, and a page that lists them.

    Hidden files, and system files of macOS and Windows, are skipped. An empty file is only listed. A file that
    cannot be unpacked or is too large for the memory limit becomes an omission. All files that exceed
    ``max_members`` or ``max_member_bytes`` become one common omission.

    Raises:
        TooLarge: The compression ratio is too high, or there are too many entries.
        Unreadable: The archive has no files, or all of them are skipped.
    """
    yield Head(media_type)
    names = MemberNames()
    listed: list[str] = []
    count, remaining, left_out = request.max_members, request.max_member_bytes, 0
    allowed_bytes = max(_UNCHECKED_BYTES, _MAX_RATIO * Path(request.path).stat().st_size)
    for number, entry in enumerate(entries):
        allowed_bytes -= entry.size
        if allowed_bytes < 0:
            raise TooLarge(f"The archive unpacks to more than {_MAX_RATIO} times its size.")
        if number == _MAX_ENTRIES:
            raise TooLarge(f"The archive has more than {_MAX_ENTRIES} entries.")
        if _is_hidden(entry.name):
            continue
        name = names.unique_name(entry.name)
        listed.append(f"- {name}")
        if not count or entry.size > remaining:
            left_out += 1
            continue
        try:
            content = _content(entry, min(remaining, request.memory // _MEMORY_SHARE))
        except Refusal as refusal:
            yield Omission(type(refusal).__name__, str(refusal), part=name)
            continue
        if content:
            count, remaining = count - 1, remaining - len(content)
            yield Member(name, content)
    if not listed:
        raise Unreadable("The archive has no files.")
    if left_out:
        yield Omission("TooLarge", f"Files of the archive exceed the limits and were left out: {left_out}.")
    outline = Outline()
    outline.block("Files of the archive:")
    for line in listed:
        outline.block(line, tight=True)
    yield Page(0, outline.end_page())


def _content(entry: Entry, max_bytes: int) -> bytes:
    too_large = TooLarge(f"The file is too large. At most {max_bytes} bytes are unpacked.")
    if entry.size > max_bytes:
        raise too_large
    with entry.open() as file:
        try:
            content = file.read(max_bytes + 1)
        except (Refusal, MemoryError):
            raise
        except Exception as error:  # libraries raise arbitrary exceptions for damaged files
            raise Unreadable("The file is damaged: it cannot be unpacked.") from error
    if len(content) > max_bytes:
        raise too_large
    return content


def _is_hidden(name: str) -> bool:
    parts = name.replace("\\", "/").lower().split("/")
    return any((part.startswith(".") and part not in (".", "..")) or part in _SYSTEM_FILES for part in parts)
