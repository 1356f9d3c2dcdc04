"""The client of the child process that recognises text: one picture at a time, within a time limit."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Sequence
from pathlib import Path

import msgspec
import structlog
from servicekit.errors import Unavailable

_log = structlog.get_logger(__name__)
_CHILD = Path(__file__).with_name("child.py")
_PREFIX = 4
_LONGEST = 16 * 1024**2
_START_SECONDS = 120.0

Corner = tuple[float, float]


class Recognised(msgspec.Struct, frozen=True, array_like=True):
    """A line of text in a picture.

    Attributes:
        text: The text.
        confidence: The confidence of the recognition, 0 to 1.
        corners: Top left, top right, bottom right, bottom left, in pixels from the picture's top left corner.
    """

    text: str
    confidence: float
    corners: tuple[Corner, Corner, Corner, Corner]


class _Answer(msgspec.Struct):
    lines: list[Recognised] = []  # msgspec copies it
    failed: str = ""


class NotRecognised(Exception):
    """A picture could not be read; the message gives the reason."""


class Recogniser:
    """Recognises one picture at a time in a child process, which is reused.

    Args:
        python: The Python that has RapidOCR.
        seconds: Time limit of a picture. The process is killed after the time limit, and if the caller is
            cancelled.
    """

    def __init__(self, python: Path, seconds: float) -> None:
        self._command: Sequence[str] = (str(python), "-I", str(_CHILD))
        self._seconds = seconds
        self._turn = asyncio.Lock()
        self._child: asyncio.subprocess.Process | None = None

    async def lines(self, picture: bytes) -> list[Recognised]:
        """Return the lines of a picture (JPEG or PNG), in no particular order.

        Raises:
            NotRecognised: The picture took too long, or crashed the process.
            Unavailable: The process does not start.
        """
        async with self._turn:
            child = self._child or await self._started()
            self._child = None
            try:
                async with asyncio.timeout(self._seconds):
                    answer = await _asked(child, picture)
            except TimeoutError:
                await _kill(child)
                raise NotRecognised(f"Reading the picture took longer than {self._seconds:g} s.") from None
            except (asyncio.IncompleteReadError, ConnectionError, msgspec.DecodeError, ValueError) as error:
                await _kill(child)
                _log.warning("a picture crashed the OCR process", error=str(error))
                raise NotRecognised("The picture crashed the OCR process.") from error
            except BaseException:
                await _kill(child)
                raise
            self._child = child
        if answer.failed:
            raise NotRecognised(f"The picture could not be read: {answer.failed}")
        return answer.lines

    async def aclose(self) -> None:
        """Stop the process."""
        if self._child is not None:
            await _kill(self._child)
            self._child = None

    async def _started(self) -> asyncio.subprocess.Process:
        try:
            child = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                env={"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
                start_new_session=True,
            )
        except OSError as error:
            raise Unavailable(f"The OCR process does not start: {error}.") from error
        try:
            async with asyncio.timeout(_START_SECONDS):
                await _frame(child)
        except (TimeoutError, asyncio.IncompleteReadError, ConnectionError, ValueError) as error:
            await _kill(child)
            raise Unavailable("The OCR process does not start. Check CAUSEWAY_INGEST_OCR_PYTHON.") from error
        except BaseException:
            await _kill(child)
            raise
        return child


async def _asked(child: asyncio.subprocess.Process, picture: bytes) -> _Answer:
    assert child.stdin is not None
    child.stdin.write(len(picture).to_bytes(_PREFIX))
    child.stdin.write(picture)
    await child.stdin.drain()
    return msgspec.json.decode(await _frame(child), type=_Answer)


async def _frame(child: asyncio.subprocess.Process) -> bytes:
    assert child.stdout is not None
    size = int.from_bytes(await child.stdout.readexactly(_PREFIX))
    if size > _LONGEST:
        raise ValueError(f"a frame of {size} bytes")
    return await child.stdout.readexactly(size)


async def _kill(child: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    await child.wait()
