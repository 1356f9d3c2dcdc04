"""Uploaded files: the checks of their names and lengths, and the limit of concurrent uploads."""

import asyncio
import codecs
import contextlib
import unicodedata
from collections.abc import AsyncIterator, Sequence

from fastapi import Request, UploadFile
from servicekit.deadline import Deadline
from servicekit.errors import InvalidRequest, PayloadTooLarge, RateLimited, UnsupportedMedia

from gateway.routes.body import media_type_of

_LONGEST_NAME = 512
_PLAIN = (".txt", ".md", ".markdown")
_BYTES_A_CHARACTER = 4  # at most, in any encoding
_WIDE = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_CONTINUATIONS = bytes(range(0x80, 0xC0))  # the bytes after the first one of a UTF-8 character


def multipart(request: Request) -> None:
    """Check that the body of a request is a multipart form; a dependency of routes.

    Raises:
        UnsupportedMedia: The body has another media type.
    """
    media = media_type_of(request.headers)
    if media != "multipart/form-data":
        raise UnsupportedMedia(f"Content-Type must be multipart/form-data, not {media}.", field="content-type")


def file_names(files: Sequence[UploadFile]) -> list[str]:
    """Return the names of the files.

    Raises:
        InvalidRequest: A file is empty, or its name is missing, too long, not printable, or a duplicate.
    """
    names: list[str] = []
    for file in files:
        name = file.filename or ""
        if not name.strip() or len(name) > _LONGEST_NAME or any(map(_breaks_lines, name)):
            message = f"A file needs a name of 1 to {_LONGEST_NAME} characters on one line"
            raise InvalidRequest(f"{message}, not {name[:_LONGEST_NAME]!r}.", field="file")
        if name in names:
            raise InvalidRequest(f"Two files have the name {name!r}: one would replace the other.", field="file")
        if not file.size:
            raise InvalidRequest(f"The file {name!r} is empty.", field="file")
        names.append(name)
    return names


async def check_lengths(files: Sequence[UploadFile | None], most: int) -> None:
    """Refuse plain text files that a worker would refuse because of their length.

    Other formats are not checked, because the size of a file does not show the length of its text.

    Raises:
        PayloadTooLarge: A file has more than ``most`` characters.
    """
    for file in files:
        name = (file.filename or "").lower() if file else ""
        if file is None or not name.endswith(_PLAIN) or (file.size or 0) <= most:
            continue
        if await asyncio.to_thread(_characters, await file.read()) > most:
            raise PayloadTooLarge(f"The file {file.filename!r} has more than {most} characters.", field="file")
        await file.seek(0)


def _characters(data: bytes) -> int:
    """Return the number of characters of a text: exact for UTF-8, a lower bound for other encodings."""
    if data.startswith(_WIDE) or b"\0" in data:
        return len(data) // _BYTES_A_CHARACTER
    return len(data.translate(None, delete=_CONTINUATIONS))


def _breaks_lines(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp")


class Turns:
    """Limits concurrent uploads: a file is in memory while it is passed on, and on the disk before that.

    Args:
        at_once: The maximum number of concurrent uploads.
    """

    def __init__(self, at_once: int) -> None:
        self._turns = asyncio.Semaphore(at_once)

    @contextlib.asynccontextmanager
    async def turn(self, deadline: Deadline) -> AsyncIterator[None]:
        """Wait for a turn, and hold it while the block runs.

        Raises:
            RateLimited: No turn became free in time.
        """
        try:
            async with asyncio.timeout(deadline.timeout()):
                await self._turns.acquire()
        except TimeoutError:
            raise RateLimited("Too many uploads are in progress.", retry_after=5) from None
        try:
            yield
        finally:
            self._turns.release()
