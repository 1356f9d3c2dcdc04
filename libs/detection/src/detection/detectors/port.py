"""The interfaces of detectors."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Protocol

from detection.chunking.chunkers import Chunker, Chunking
from detection.domain import Detection, DetectionContext, DetectorKind

WHOLE_TEXT_LIMIT = 49_152
"""The maximum number of held-back code points of a growing text, for detectors that judge it as a whole.

The gateway buffers at most 65,536 characters of each choice while detectors judge them. This limit is lower.
"""

_UNPROCESSABLE = 422


class DetectorFailed(Exception):
    """A detector cannot judge a text. The request's ``on_error`` decides the effect.

    Args:
        message: The reason, for the client.
        status: The HTTP status that describes the failure, for example the status of a remote detector's response,
            or 0.
    """

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class MissingPassages(DetectorFailed):
    """The detector was not called, because the request has no passages to compare the text with.

    If the action of the rule is to report, the text passes without the detector, even if ``on_error`` is ``block``.
    """

    def __init__(self) -> None:
        super().__init__("there are no passages to compare the text with", _UNPROCESSABLE)


class DetectorStream(Protocol):
    """The state of a detector for one growing text."""

    def feed(self, text: str, last: bool) -> tuple[int, list[Detection]]:
        """Judge the next piece; the last piece ends the stream.

        The detections of all pieces together equal the detections of `Detector.detect` for the whole text.

        Returns:
            The length of the decided text in code points, and the detections that became certain with this piece.
            No later detection begins in decided text. The length never decreases. With the last piece, it is the
            length of the whole text.

        Raises:
            DetectorFailed: The text cannot be judged; the stream must not be used any more.
        """
        ...


class Detector(Protocol):
    """A quick detector, which searches texts in this process.

    Requests and threads share a detector, so it has no per-request state.
    """

    @property
    def inline_limit(self) -> int:
        """The maximum length, in code points, of a text that may be judged on the event loop."""
        ...

    def detect(self, text: str) -> list[Detection]:
        """Return all detections in a whole text, ordered by start.

        Raises:
            DetectorFailed: The text cannot be judged.
        """
        ...

    def stream(self) -> DetectorStream:
        """Return a stream for a growing text."""
        ...


class Judge(ABC):
    """A slow detector, which sends windows of the text to a model, a process or a server.

    Requests share a judge, so it has no per-request state.

    Attributes:
        kind: The kind of input.
        chunking: The kind of windows.
        seconds: The time limit of one call. After that, the detector has failed.
        cross_choice: Whether one call judges all choices of an answer. Each choice gets the findings of all
            choices.
        judges_blank: Whether the detector also judges empty texts and white space, for example a message that only
            calls tools. If so, it judges whole texts.
    """

    kind: DetectorKind
    chunking: Chunking
    seconds: float
    cross_choice: bool = False
    judges_blank: bool = False

    def chunker(self, ready: Callable[[], None]) -> Chunker:  # noqa: ARG002  # remote chunkers use it
        """Return a chunker for one text. The chunker calls ``ready`` on the event loop when it has new ends."""
        return self.chunking.chunker()

    @abstractmethod
    async def judge(self, windows: Sequence[str], context: DetectionContext) -> list[list[Detection]]:
        """Return the detections in each window, ordered by start. Positions are code points of the window.

        `detection.moderation.judge_calls.call_judge` calls this method. It calls a judge of the kind CONTEXT_DOC
        only if there are passages.

        Raises:
            DetectorFailed: The windows cannot be judged.
        """


class WholeTextStream:
    """The stream of a detector of whole texts. It decides nothing before the last piece.

    Args:
        detector: Judges the complete text.
    """

    def __init__(self, detector: Detector) -> None:
        self._detector = detector
        self._pieces: list[str] = []
        self._length = 0

    def feed(self, text: str, last: bool) -> tuple[int, list[Detection]]:
        """See `DetectorStream.feed`."""
        self._pieces.append(text)
        self._length += len(text)
        if self._length > WHOLE_TEXT_LIMIT:
            raise DetectorFailed(f"more than {WHOLE_TEXT_LIMIT} characters would have to be held back")
        if not last:
            return 0, []
        return self._length, self._detector.detect("".join(self._pieces))


class WholeTextDetector:
    """Judges complete texts, and holds growing texts back until they are complete.

    Args:
        judge: Returns the detections in a text; raises `DetectorFailed`.
        inline_limit: See `Detector`.
    """

    def __init__(self, judge: Callable[[str], list[Detection]], inline_limit: int) -> None:
        self._judge = judge
        self.inline_limit = inline_limit

    def detect(self, text: str) -> list[Detection]:
        """See `Detector.detect`."""
        return self._judge(text)

    def stream(self) -> DetectorStream:
        """See `Detector.stream`."""
        return WholeTextStream(self)
