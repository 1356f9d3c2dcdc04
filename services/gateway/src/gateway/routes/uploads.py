"""Files that come in forms: their names, and how many are taken in at once."""

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
_CONTINUATIONS = bytes(range(0x80, 0xC0))  # of a character in UTF-8, behind its first byte


def multipart(request: Request) -> None:
    """A dependency of routes that take forms of several parts.

    Raises:
        UnsupportedMedia: The body is something else.
    """
    media = media_type_of(request.headers)
    if media != "multipart/form-data":
        raise UnsupportedMedia(f"Content-Type must be multipart/form-data, not {media}.", field="content-type")


def file_names(files: Sequence[UploadFile]) -> list[str]:
    """The files' names.

    Raises:
        InvalidRequest: A file is empty, or its name is missing, too long, not printable, or another's.
    """
    names: list[str] = []
    for file in files:
        name = file.filename or ""
        if not name.strip() or len(name) > _LONGEST_NAME or any(map(_breaks_lines, name)):
            said = f"A file needs a name of 1 to {_LONGEST_NAME} characters on one line"
            raise InvalidRequest(f"{said}, not {name[:_LONGEST_NAME]!r}.", field="file")
        if name in names:
            raise InvalidRequest(f"Two files are called {name!r}: one would replace the other.", field="file")
        if not file.size:
            raise InvalidRequest(f"The file {name!r} is empty.", field="file")
        names.append(name)
    return names


async def check_lengths(files: Sequence[UploadFile | None], most: int) -> None:
    """Refuse plain text that a worker would refuse for its length.

    Other files are not looked at: they are shorter as text than they are, or longer.

    Raises:
        PayloadTooLarge: A file has more characters than `most`.
    """
    for file in files:
        name = (file.filename or "").lower() if file else ""
        if file is None or not name.endswith(_PLAIN) or (file.size or 0) <= most:
            continue
        if await asyncio.to_thread(_characters, await file.read()) > most:
            raise PayloadTooLarge(f"The file {file.filename!r} has more than {most} characters.", field="file")
        await file.seek(0)


def _characters(data: bytes) -> int:
    """Return how many characters a text has: exactly in UTF-8, at least in other encodings."""
    if data.startswith(_WIDE) or b"\0" in data:
        return len(data) // _BYTES_A_CHARACTER
    return len(data.translate(None, delete=_CONTINUATIONS))


def _breaks_lines(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp")


class Turns:
    """How many uploads are handed over at once: files are in memory then, and wait on the disk before.

    Args:
        at_once: The number.
    """

    def __init__(self, at_once: int) -> None:
        self._turns = asyncio.Semaphore(at_once)

    @contextlib.asynccontextmanager
    async def turn(self, deadline: Deadline) -> AsyncIterator[None]:
        """Waits for a turn, and has it until the block is left.

        Raises:
            RateLimited: None came in time.
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
