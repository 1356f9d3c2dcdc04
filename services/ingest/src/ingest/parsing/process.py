"""The client of the parsing child. `ingest.ocr.reading.OcrParser` uses it to implement `ingest.ports.Parser`."""

import asyncio
import signal
import sys
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import msgspec
import structlog
from servicekit.child_processes import Child, ChildEnded, ChildNotStarted, ChildProcesses
from servicekit.errors import InvalidRequest, PayloadTooLarge, Unavailable, UnreadableDocument, UnsupportedMedia

from ingest.parsing import frames, short_text
from ingest.parsing.content import NO_MEMBERS, Head, Member, MemberLimits, Omission, Page, Part, Scan
from ingest.parsing.frames import Defect, Done, Refused, Request
from ingest.parsing.scans import ScanMode

_log = structlog.get_logger(__name__)

COMMAND: Sequence[str] = (sys.executable, "-P", "-m", "ingest.parsing.child")
_REFUSALS: dict[str, type[InvalidRequest]] = {
    "Unreadable": UnreadableDocument,
    "Unsupported": UnsupportedMedia,
    "TooLarge": PayloadTooLarge,
}


def refusal(kind: str, message: str) -> InvalidRequest:
    """Return the service error for a refusal of the child.

    Args:
        kind: The name of the refusal's class in `ingest.parsing.refusals`.
        message: The message of the refusal.
    """
    return _REFUSALS.get(kind, UnreadableDocument)(message)


class ParserDefect(Exception):
    """A parser raised an unexpected error; the message is its stack trace."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one document.

    Attributes:
        pages: Number of pages.
        characters: Number of characters of text.
        seconds: Seconds of wall-clock time, and of CPU time.
        memory: Bytes of address space.
        pictures: Number of pages with pictures, if the job requests pictures.
    """

    pages: int = 5000
    characters: int = 20_000_000
    seconds: float = 120.0
    memory: int = 1024**3
    pictures: int = 500


class ProcessParser:
    """Parses each document in a child process.

    Idle children are reused. A new child starts only if all others are busy.
    An idle child contains no document and uses no CPU time.

    Args:
        limits: The limits of a document.
        command: The command that starts a child.
    """

    def __init__(self, limits: Limits, command: Sequence[str] = COMMAND) -> None:
        self._limits = limits
        self._children = ChildProcesses(command, max_frame_bytes=frames.MAX_FRAME)

    async def parse(
        self,
        path: Path,
        sourcefile: str,
        *,
        pictures: bool = False,
        members: MemberLimits = NO_MEMBERS,
        scans: ScanMode = ScanMode.MISSING,
    ) -> AsyncGenerator[Part, None]:
        """Yield the parts of a file.

        The time limit does not include the time that the caller takes between two parts. Close the iterator after
        use. If the response was not read to the end, the child is killed.

        Args:
            path: The file.
            sourcefile: The name of the document. Its suffix can determine the format.
            pictures: Whether the first pages have pictures, as many as the limits allow.
            members: The limits of the files within the file.
            scans: How to handle images of text.

        Raises:
            UnreadableDocument, UnsupportedMedia, PayloadTooLarge: The document cannot be read.
            Unavailable: The parser does not start.
            ParserDefect: The parser has a defect.
        """
        clock = asyncio.get_running_loop().time
        request = self._request(path, sourcefile, pictures=pictures, members=members, scans=scans)
        try:
            async with self._children.reserve() as child:
                end = clock() + self._limits.seconds
                await child.send(request)  # small enough for the pipe's buffer
                while not child.is_complete:
                    frame = await self._frame(child, end)
                    child.is_complete = isinstance(frame, Done | Refused | Defect)
                    match frame:
                        case Refused(kind, message):
                            raise refusal(kind, message)
                        case Defect(stack):
                            raise ParserDefect(stack)
                        case Head() | Page() | Scan() | Member() | Omission():
                            handed_over = clock()
                            yield frame
                            end += clock() - handed_over
        except ChildNotStarted as error:
            raise Unavailable("The parser does not start.") from error
        except ChildEnded as error:
            raise self._crash(error.code) from None

    def read_short(self, content: bytes, sourcefile: str) -> Sequence[Part] | None:
        """See `ingest.ports.Parser.read_short`. Uses no child process."""
        return short_text.parts(content, PurePosixPath(sourcefile).suffix, self._limits.characters)

    async def aclose(self) -> None:
        """Stop the idle children."""
        await self._children.aclose()

    def _request(
        self, path: Path, sourcefile: str, *, pictures: bool, members: MemberLimits, scans: ScanMode
    ) -> bytes:
        limits = self._limits
        return msgspec.msgpack.encode(
            Request(
                path=str(path),
                suffix=PurePosixPath(sourcefile).suffix,
                max_pages=limits.pages,
                max_characters=limits.characters,
                memory=limits.memory,
                cpu_seconds=max(1, round(limits.seconds)),
                max_pictures=limits.pictures if pictures else 0,
                max_members=members.count,
                max_member_bytes=members.bytes,
                scans=scans,
            )
        )

    async def _frame(self, child: Child, end: float) -> frames.Frame:
        """Read the next frame of a child's response."""
        try:
            async with asyncio.timeout_at(end):
                return frames.decode_frame(await child.receive())
        except TimeoutError:
            raise self._too_slow() from None
        except ValueError as error:  # an invalid length or frame
            raise UnreadableDocument("The document is damaged: the parser returned an invalid response.") from error

    def _too_slow(self) -> UnreadableDocument:
        return UnreadableDocument(f"Reading the document took longer than {self._limits.seconds:g} s.")

    def _crash(self, code: int) -> UnreadableDocument:
        number = -code if code < 0 else code - 128
        name = signal.Signals(number).name if number in set(signal.Signals) else f"exit code {code}"
        _log.warning("a document crashed the parser", cause=name)
        if number == signal.SIGXCPU:
            return self._too_slow()
        return UnreadableDocument(f"The document is damaged: it crashed the parser ({name}).")
