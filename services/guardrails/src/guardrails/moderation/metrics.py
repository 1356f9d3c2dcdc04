"""What detectors cost: their seconds, their failures, and how long text waits for them."""

import contextlib
import time
from collections import deque
from collections.abc import Iterator

from servicekit import metrics

from guardrails.detectors.port import NotAsked

_BUCKETS = (0.00001, 0.0001, *metrics.SECONDS)
_durations = metrics.durations(
    __name__,
    "causeway.detector.duration",
    "Seconds that a detector took: of one that asks somebody, for a question; of the others, for a text.",
    _BUCKETS,
)
_holds = metrics.durations(
    __name__,
    "causeway.guardrails.hold.duration",
    "Seconds that a growing text was held back at most, the time included in which its writer did not go on.",
    _BUCKETS,
)

CLEAN, FOUND, FAILED, NOT_ASKED = "clean", "found", "failed", "not_asked"
"""What came of a detector's work."""


class Work:
    """What one detector does for one text.

    Attributes:
        seconds: So far.
        outcome: What came of it so far.
    """

    __slots__ = ("_detector_id", "outcome", "seconds")

    def __init__(self, detector_id: str) -> None:
        self._detector_id = detector_id
        self.seconds = 0.0
        self.outcome = CLEAN

    def failed(self, error: Exception) -> None:
        """It cannot judge."""
        self.outcome = NOT_ASKED if isinstance(error, NotAsked) else FAILED

    def end(self) -> None:
        """Counts it."""
        labels = {"causeway.detector": self._detector_id, "causeway.outcome": self.outcome}
        _durations.record(self.seconds, labels)


@contextlib.contextmanager
def working(detector_id: str) -> Iterator[Work]:
    """Counts what a detector does in the block, unless it is stopped; an error that leaves it is the detector's."""
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
    """How long the pieces of a growing text wait."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, float]] = deque()
        self._longest: float | None = None

    def came(self, length: int) -> None:
        """The text has grown to so many code points."""
        self._waiting.append((length, time.perf_counter()))

    def left(self, cleared: int) -> None:
        """It is cleared up to this code point."""
        waiting = self._waiting
        if waiting and waiting[0][0] <= cleared:
            # The first has waited longest.
            seconds = time.perf_counter() - waiting[0][1]
            self._longest = max(self._longest or 0.0, seconds)
            while waiting and waiting[0][0] <= cleared:
                waiting.popleft()

    def end(self) -> None:
        """Counts it, once anything was released."""
        if self._longest is not None:
            _holds.record(self._longest)
