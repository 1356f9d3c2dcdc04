"""Metrics of detectors: durations, outcomes, and the time for which text is held back."""

import contextlib
import time
from collections import deque
from collections.abc import Iterator

from servicekit import metrics

from detection.detectors.port import MissingPassages

_BUCKETS = (0.00001, 0.0001, *metrics.SECONDS)
_durations = metrics.durations(
    __name__,
    "causeway.detector.duration",
    "Seconds that a detector takes for one call of its model or server. For a detector that uses neither: for one "
    "growing text, or for all texts of a request.",
    _BUCKETS,
)
_holds = metrics.durations(
    __name__,
    "causeway.guardrails.hold.duration",
    "Longest time in seconds for which a growing text was held back, including time without new text.",
    _BUCKETS,
)

CLEAN, FOUND, FAILED, NOT_ASKED = "clean", "found", "failed", "not_asked"
"""The outcomes of a detector's work."""


class Work:
    """The work of one detector that one measurement covers, for example one call or one growing text.

    Attributes:
        seconds: The time so far.
        outcome: The outcome so far.
    """

    __slots__ = ("_detector_id", "outcome", "seconds")

    def __init__(self, detector_id: str) -> None:
        self._detector_id = detector_id
        self.seconds = 0.0
        self.outcome = CLEAN

    def failed(self, error: Exception) -> None:
        """Note that the detector failed."""
        self.outcome = NOT_ASKED if isinstance(error, MissingPassages) else FAILED

    def end(self) -> None:
        """Record the work."""
        labels = {"causeway.detector": self._detector_id, "causeway.outcome": self.outcome}
        _durations.record(self.seconds, labels)


@contextlib.contextmanager
def working(detector_id: str) -> Iterator[Work]:
    """Record the work that a detector does in the block.

    An exception counts as a failure of the detector. A cancelled block records nothing.
    """
    work, begin = Work(detector_id), time.perf_counter()
    try:
        yield work
    except Exception as error:
        work.failed(error)
        work.seconds = time.perf_counter() - begin
        work.end()
        raise
    work.seconds = time.perf_counter() - begin
    work.end()


class Hold:
    """Measures how long the pieces of a growing text wait."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, float]] = deque()
        self._max_seconds: float | None = None

    def grew(self, length: int) -> None:
        """Note that the text has grown to this length in code points."""
        self._waiting.append((length, time.perf_counter()))

    def released(self, cleared: int) -> None:
        """Note that the text is cleared up to this code point."""
        waiting = self._waiting
        if waiting and waiting[0][0] <= cleared:
            # The first piece has waited the longest time.
            seconds = time.perf_counter() - waiting[0][1]
            self._max_seconds = max(self._max_seconds or 0.0, seconds)
            while waiting and waiting[0][0] <= cleared:
                waiting.popleft()

    def end(self) -> None:
        """Record the longest wait, if any text was released."""
        if self._max_seconds is not None:
            _holds.record(self._max_seconds)
