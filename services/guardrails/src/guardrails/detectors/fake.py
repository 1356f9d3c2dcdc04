"""A detector for tests: finds the words it was told, fails where it was told."""

from guardrails.detectors.port import DetectorFailed, DetectorStream, WholeTextStream
from guardrails.domain import Detection


class ScriptedDetector:
    """Finds each occurrence of its phrase, and fails on texts with its poison.

    It judges whole texts only, so that a growing text is held until it is complete.

    Args:
        phrase: What it finds.
        poison: What it fails on; none: it never fails.
        spans: Whether its detections say where.
        inline_limit: See `Detector`.
        error: What it fails with.
    """

    def __init__(
        self,
        phrase: str,
        *,
        poison: str | None = None,
        spans: bool = True,
        inline_limit: int = 16_384,
        error: Exception | None = None,
    ) -> None:
        self.inline_limit = inline_limit
        self._phrase = phrase
        self._poison = poison
        self._spans = spans
        self._error = error or DetectorFailed("the detector was told to fail")

    def detect(self, text: str) -> list[Detection]:
        """See `Detector.detect`."""
        if self._poison is not None and self._poison in text:
            raise self._error
        found, start = [], text.find(self._phrase)
        while start >= 0:
            end = start + len(self._phrase)
            place = (start, end) if self._spans else (None, None)
            found.append(Detection("scripted", "phrase", text[start:end], *place))
            start = text.find(self._phrase, end)
        return found

    def stream(self) -> DetectorStream:
        """See `Detector.stream`."""
        return WholeTextStream(self, 8192)
