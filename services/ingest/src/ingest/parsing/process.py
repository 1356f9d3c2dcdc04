"""The worker's end of the parsing child; implements `ingest.ports.Parser`."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import structlog
from servicekit.errors import InvalidRequest, PayloadTooLarge, Unavailable, UnreadableDocument, UnsupportedMedia

from ingest.parsing import frames
from ingest.parsing.content import NO_ROOM, Head, Member, Omission, Page, Part, Room, Scan
from ingest.parsing.frames import Defect, Done, Refused, Request
from ingest.parsing.scans import Scans

_log = structlog.get_logger(__name__)

COMMAND: Sequence[str] = (sys.executable, "-P", "-m", "ingest.parsing.child")
_START_SECONDS = 60.0
_REFUSALS: dict[str, type[InvalidRequest]] = {
    "Unreadable": UnreadableDocument,
    "Unsupported": UnsupportedMedia,
    "TooLarge": PayloadTooLarge,
}


def refusal(kind: str, message: str) -> InvalidRequest:
    """Return the platform's error for a class of `refusals`."""
    return _REFUSALS.get(kind, UnreadableDocument)(message)


class ParserDefect(Exception):
    """A parser met an unexpected error; the message is its stack."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one document may cost.

    Attributes:
        pages: Most pages.
        characters: Most characters of text.
        seconds: Longest wall and CPU time.
        memory: Most bytes of address space.
        pictures: Most pages of which pictures are made, where they are wanted.
    """

    pages: int = 5000
    characters: int = 20_000_000
    seconds: float = 120.0
    memory: int = 1024**3
    pictures: int = 500


class ProcessParser:
    """Parses each document in a process of its own.

    Keeps as many idle children as there were documents at a time; they hold no document and cost no CPU time.

    Args:
        limits: Per document.
        command: Starts a child.
    """

    def __init__(self, limits: Limits, command: Sequence[str] = COMMAND) -> None:
        self._limits = limits
        self._command = command
        self._idle: list[asyncio.subprocess.Process] = []

    async def parse(
        self,
        path: Path,
        sourcefile: str,
        *,
        pictures: bool = False,
        members: Room = NO_ROOM,
        scans: Scans = Scans.MISSING,
    ) -> AsyncGenerator[Part, None]:
        """Yield what a file holds: with pictures where they are wanted, with the files within it as there is room.

        The time that the caller takes between two parts does not count.

        Close the iterator: a child that is not read to its end is killed.

        Raises:
            UnreadableDocument, UnsupportedMedia, PayloadTooLarge: The document's own fault.
            Unavailable: The parser does not start.
            ParserDefect: A defect of a parser.
        """
        child = self._idle.pop() if self._idle else await self._start()
        assert child.stdin is not None
        clock = asyncio.get_running_loop().time
        end = clock() + self._limits.seconds
        finished = False
        try:
            child.stdin.write(
                self._request(path, sourcefile, pictures=pictures, members=members, scans=scans)
            )  # small: there is room for it
            while not finished:
                frame = await self._frame(child, end)
                finished = isinstance(frame, Done | Refused | Defect)
                match frame:
                    case Refused(kind, message):
                        raise refusal(kind, message)
                    case Defect(stack):
                        raise ParserDefect(stack)
                    case Head() | Page() | Scan() | Member() | Omission():
                        handed_over = clock()
                        yield frame
                        end += clock() - handed_over
        finally:
            if finished:
                self._idle.append(child)
            else:
                await _kill(child)

    async def aclose(self) -> None:
        """Ends the idle children."""
        idle, self._idle = self._idle, []
        for child in idle:
            await _kill(child)

    async def _start(self) -> asyncio.subprocess.Process:
        """A child that waits for requests. Its start counts against no document."""
        child = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={},  # nothing of the service's settings or secrets
            start_new_session=True,  # so that a child and its forks are killed together
        )
        try:
            await self._frame(child, asyncio.get_running_loop().time() + _START_SECONDS)
        except UnreadableDocument as error:
            await _kill(child)
            raise Unavailable("The parser does not start.") from error
        except BaseException:
            await _kill(child)
            raise
        return child

    def _request(self, path: Path, sourcefile: str, *, pictures: bool, members: Room, scans: Scans) -> bytes:
        limits = self._limits
        return frames.encode(
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

    async def _frame(self, child: asyncio.subprocess.Process, end: float) -> frames.Frame:
        """The next part of a child's answer."""
        assert child.stdout is not None
        try:
            async with asyncio.timeout_at(end):
                body = await child.stdout.readexactly(frames.length(await child.stdout.readexactly(frames.PREFIX)))
            return frames.decode_frame(body)
        except TimeoutError:
            raise self._too_slow() from None
        except (asyncio.IncompleteReadError, ConnectionError):
            raise await self._died(child) from None
        except ValueError as error:  # of the length, or of what was sent
            raise UnreadableDocument("The document is damaged: the parser answered nonsense.") from error

    def _too_slow(self) -> UnreadableDocument:
        return UnreadableDocument(f"Reading the document took longer than {self._limits.seconds:g} s.")

    async def _died(self, child: asyncio.subprocess.Process) -> UnreadableDocument:
        code = await child.wait()
        number = -code if code < 0 else code - 128
        name = signal.Signals(number).name if number in set(signal.Signals) else f"exit code {code}"
        _log.warning("a document ended the parser", how=name)
        if number == signal.SIGXCPU:
            return self._too_slow()
        return UnreadableDocument(f"The document is damaged: the parser crashed on it ({name}).")


async def _kill(child: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    await child.wait()
