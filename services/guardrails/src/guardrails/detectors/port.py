"""What a detector is to the rest of the service."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Protocol

from guardrails.chunking.chunkers import Chunker, Chunking
from guardrails.domain import Detection, DetectionContext, DetectorKind, Health

_UNPROCESSABLE = 422


class DetectorFailed(Exception):
    """A detector cannot judge a text; the message is for the client. What follows is the request's ``on_error``.

    Args:
        message: Why.
        status: The HTTP status of a remote detector's refusal; 0 where there is none.
    """

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class NotAsked(DetectorFailed):
    """There is nothing that the detector could compare the text with, so that it is not asked.

    Whoever only wants to be told of findings goes on without it, whatever its ``on_error`` says.
    """

    def __init__(self) -> None:
        super().__init__("there are no passages that the text could rest on", _UNPROCESSABLE)


class DetectorStream(Protocol):
    """A detector's view of one growing text."""

    def feed(self, text: str, last: bool) -> tuple[int, list[Detection]]:
        """Takes the next piece; never called again after the last.

        Over all pieces the detections are those that `Detector.detect` gives for the whole text.

        Returns:
            How far the text is decided, in code points from its beginning: no detection that is yet to come
            begins before it. Never less than before, and the whole length with the last piece. And the
            detections that are certain now and were not before.

        Raises:
            DetectorFailed: The text cannot be judged; the stream is of no further use.
        """
        ...


class Detector(Protocol):
    """Finds something in texts. One is shared by many requests and threads: it holds no state of theirs."""

    @property
    def inline_limit(self) -> int:
        """Code points up to which a text is judged so fast that the event loop may wait for it."""
        ...

    def detect(self, text: str) -> list[Detection]:
        """All detections in a whole text, ordered by start.

        Raises:
            DetectorFailed: The text cannot be judged.
        """
        ...

    def stream(self) -> DetectorStream:
        """A view of a text that is about to grow."""
        ...


class Judge(ABC):
    """A detector that takes its time: it asks a model or another server, about windows of the text.

    One is shared by many requests: it holds no state of theirs.

    Attributes:
        kind: What it looks at.
        chunking: What its windows are.
        seconds: What one answer may take; beyond it the detector has failed.
        cross_choice: It is asked about all choices of an answer together, and what it finds counts for each.
        judges_blank: It is asked about texts of white space, and empty ones, too; only for whole texts.
    """

    kind: DetectorKind
    chunking: Chunking
    seconds: float
    cross_choice: bool = False
    judges_blank: bool = False

    def chunker(self, ready: Callable[[], None]) -> Chunker:  # noqa: ARG002  # for those that answer later
        """What cuts one text into windows; ``ready`` is called, in the event loop, when it has more to say."""
        return self.chunking.chunker()

    @abstractmethod
    async def judge(self, windows: Sequence[str], context: DetectionContext) -> list[list[Detection]]:
        """The detections in each window, in its own code points, ordered by start.

        Raises:
            DetectorFailed: The windows cannot be judged.
        """

    async def health(self) -> Health:
        """How it is; asked seldom, never on the way of a request."""
        return Health(healthy=True)


class WholeTextStream:
    """The view of a detector that can only judge whole texts: it decides nothing before the last piece.

    Args:
        detector: Judges the text once it is complete.
        limit: Code points that are held at most.
    """

    def __init__(self, detector: Detector, limit: int) -> None:
        self._detector = detector
        self._limit = limit
        self._pieces: list[str] = []
        self._length = 0

    def feed(self, text: str, last: bool) -> tuple[int, list[Detection]]:
        """See `DetectorStream.feed`."""
        self._pieces.append(text)
        self._length += len(text)
        if self._length > self._limit:
            raise DetectorFailed(f"more than {self._limit} characters would have to be held back")
        if not last:
            return 0, []
        return self._length, self._detector.detect("".join(self._pieces))


class WholeTextDetector:
    """Judges complete texts; growing ones are held until they are.

    Args:
        judge: The detections in a text; raises `DetectorFailed`.
        limit: Code points that are held at most.
        inline_limit: See `Detector`.
    """

    def __init__(self, judge: Callable[[str], list[Detection]], limit: int, inline_limit: int) -> None:
        self._judge = judge
        self._limit = limit
        self.inline_limit = inline_limit

    def detect(self, text: str) -> list[Detection]:
        """See `Detector.detect`."""
        return self._judge(text)

    def stream(self) -> DetectorStream:
        """See `Detector.stream`."""
        return WholeTextStream(self, self._limit)
