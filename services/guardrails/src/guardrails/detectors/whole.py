"""Detectors that a function makes, on whole texts."""

from collections.abc import Callable

from guardrails.detectors.port import DetectorStream, WholeTextStream
from guardrails.domain import Detection


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
