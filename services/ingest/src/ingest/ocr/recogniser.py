"""The client of the child process that recognises text."""

from pathlib import Path

import msgspec
import structlog
from servicekit import child_program
from servicekit.child_processes import ChildEnded, ChildNotStarted, ChildProcesses
from servicekit.errors import Unavailable

_log = structlog.get_logger(__name__)
_CHILD = Path(__file__).with_name("child.py")
_MAX_MESSAGE_BYTES = 16 * 1024**2
"""Maximum bytes of a response of the child process."""

Corner = tuple[float, float]


class RecognisedLine(msgspec.Struct, frozen=True, array_like=True):
    """A line of text in a picture.

    Attributes:
        text: The text.
        confidence: The confidence of the recognition, 0 to 1.
        corners: Top left, top right, bottom right, bottom left, in pixels from the picture's top left corner.
    """

    text: str
    confidence: float
    corners: tuple[Corner, Corner, Corner, Corner]


class _Response(msgspec.Struct):
    lines: list[RecognisedLine] = []  # msgspec copies it
    failed: str = ""
    damaged: bool = False


class NotRecognised(Exception):
    """A picture could not be read; the message gives the reason."""


class Recogniser:
    """Recognises one picture at a time in a child process, which is reused.

    Args:
        python: The path of the Python interpreter that has RapidOCR.
        seconds: Time limit for a picture. The process is killed after this time, and if the caller is cancelled.
    """

    def __init__(self, python: Path, seconds: float) -> None:
        self._seconds = seconds
        self._processes = ChildProcesses(
            (str(python), "-I", str(_CHILD), child_program.__file__),
            {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            max_frame_bytes=_MAX_MESSAGE_BYTES,
            processes=1,
        )

    async def lines(self, picture: bytes) -> list[RecognisedLine]:
        """Return the lines of a picture (JPEG or PNG), in no particular order.

        Raises:
            NotRecognised: The picture is damaged, took too long, or crashed the process.
            Unavailable: The process does not start.
        """
        try:
            response = msgspec.json.decode(await self._processes.call(picture, self._seconds), type=_Response)
        except ChildNotStarted as error:
            raise Unavailable("The OCR process does not start. Check CAUSEWAY_INGEST_OCR_PYTHON.") from error
        except TimeoutError:
            raise NotRecognised(f"Reading the picture took longer than {self._seconds:g} s.") from None
        except (ChildEnded, ValueError) as error:  # no response, or an invalid one
            _log.warning("a picture crashed the OCR process", error=str(error))
            raise NotRecognised("The picture crashed the OCR process.") from error
        if response.failed:
            _log.warning("a picture was not read", error=response.failed)
            raise NotRecognised("The picture is damaged." if response.damaged else "The picture could not be read.")
        return response.lines

    async def aclose(self) -> None:
        """Stop the process."""
        await self._processes.aclose()
