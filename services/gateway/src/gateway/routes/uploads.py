"""Checks the names and lengths of uploaded files, and limits concurrent uploads."""

import asyncio
import codecs
import contextlib
from collections.abc import AsyncIterator, Sequence

from fastapi import Request, UploadFile
from servicekit import keys
from servicekit.characters import has_controls
from servicekit.deadline import Deadline
from servicekit.errors import InvalidRequest, PayloadTooLarge, RateLimited

from gateway.routes.body import media_type_of, unsupported_media

_MAX_NAME_LENGTH = 512
_ESCAPES = {"%22": '"', "%0D": "\r", "%0A": "\n"}
"""The only characters that clients escape in the names of a form's files (HTML Standard, multipart form data)."""
_PLAIN_TEXT_SUFFIXES = (".txt", ".md", ".markdown")
_MAX_CHARACTER_BYTES = 4  # in UTF-8, UTF-16 and UTF-32
_UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_CONTINUATIONS = bytes(range(0x80, 0xC0))  # the bytes after the first one of a UTF-8 character


def require_form(request: Request) -> None:
    """Check that the body of a request is a multipart form. FastAPI calls this as a dependency of routes.

    Raises:
        UnsupportedMedia: The body has another media type.
    """
    media = media_type_of(request.headers)
    if media != "multipart/form-data":
        raise unsupported_media("multipart/form-data", media)


def file_names(files: Sequence[UploadFile]) -> list[str]:
    """Return the names of the files, unescaped and in Unicode normalization form C.

    Raises:
        InvalidRequest: A file is empty, or its name is missing, too long or a duplicate, or has control characters,
            line separators or surrogates.
    """
    names: list[str] = []
    for file in files:
        name = keys.file_name(_unescaped(file.filename or ""))
        if not name.strip() or len(name) > _MAX_NAME_LENGTH or has_controls(name):
            message = f"A file needs a name of 1 to {_MAX_NAME_LENGTH} characters on one line"
            raise InvalidRequest(f"{message}, not {name[:_MAX_NAME_LENGTH]!r}.", field="file")
        if name in names:
            raise InvalidRequest(f"Two files have the same name {name!r}. Rename one of them.", field="file")
        if not file.size:
            raise InvalidRequest(f"The file {name!r} is empty.", field="file")
        names.append(name)
    return names


def _unescaped(name: str) -> str:
    for escape, character in _ESCAPES.items():
        name = name.replace(escape, character)
    return name


async def check_lengths(files: Sequence[UploadFile | None], max_characters: int) -> None:
    """Check the lengths of plain text files, which a worker would check later.

    The function does not check other formats, because the size of such a file does not show the length of its text.

    Raises:
        PayloadTooLarge: A file has more than ``max_characters`` characters.
    """
    for file in files:
        name = (file.filename or "").lower() if file else ""
        if file is None or not name.endswith(_PLAIN_TEXT_SUFFIXES) or (file.size or 0) <= max_characters:
            continue
        if await asyncio.to_thread(_characters, await file.read()) > max_characters:
            raise PayloadTooLarge(
                f"The file {file.filename!r} has more than {max_characters} characters.", field="file"
            )
        await file.seek(0)


def _characters(data: bytes) -> int:
    """Return the number of characters of a text file: exact for UTF-8, a lower bound for other encodings."""
    if data.startswith(_UTF16_MARKS) or b"\0" in data:
        return len(data) // _MAX_CHARACTER_BYTES
    return len(data.translate(None, delete=_CONTINUATIONS))


class UploadSlots:
    """Limits concurrent uploads, because the gateway holds files of each upload in memory while it stores them.

    Args:
        slots: The maximum number of concurrent uploads.
    """

    def __init__(self, slots: int) -> None:
        self._slots = asyncio.Semaphore(slots)

    @contextlib.asynccontextmanager
    async def slot(self, deadline: Deadline) -> AsyncIterator[None]:
        """Wait for a slot, and occupy it until the block ends.

        Raises:
            RateLimited: No slot became free in time.
        """
        try:
            async with asyncio.timeout(deadline.timeout()):
                await self._slots.acquire()
        except TimeoutError:
            raise RateLimited("Too many uploads are in progress. Try again later.", retry_after=5) from None
        try:
            yield
        finally:
            self._slots.release()
