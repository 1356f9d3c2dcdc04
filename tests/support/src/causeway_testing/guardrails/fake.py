"""Detectors for tests. They find a given phrase, and fail on texts that contain another given phrase."""

import asyncio
from collections.abc import Sequence

from detection.chunking.chunkers import Chunking
from detection.detectors.port import DetectorFailed, DetectorStream, Judge, WholeTextStream
from detection.domain import Detection, DetectionContext, DetectorKind


class ScriptedDetector:
    """Finds each occurrence of a phrase, and fails on texts that contain the poison.

    The detector judges only complete texts, so a growing text is held back until it is complete.

    Args:
        phrase: The text to find.
        poison: The text that causes a failure, or None.
        spans: Whether detections have a span.
        inline_limit: See `Detector`.
        error: The error of a failure.
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
        self._error = error or DetectorFailed("a scripted failure")

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
        return WholeTextStream(self)


class ScriptedJudge(Judge):
    """A slow `ScriptedDetector`, which answers when `gate` is set.

    Args:
        phrase: The text to find.
        poison: The text that causes a failure, or None.
        chunking: The windows.
        kind: The kind of input.
        seconds: The time limit.

    Attributes:
        gate: The event that each call awaits. It is set at the beginning.
        calls: The windows of each call.
        context: The context of the latest call.
        cancelled: The number of cancelled calls.
    """

    def __init__(
        self,
        phrase: str,
        *,
        poison: str | None = None,
        chunking: Chunking = Chunking.SENTENCE,
        kind: DetectorKind = DetectorKind.CONTENTS,
        seconds: float = 30.0,
        cross_choice: bool = False,
    ) -> None:
        self._scripted = ScriptedDetector(phrase, poison=poison)
        self.chunking = chunking
        self.kind = kind
        self.seconds = seconds
        self.cross_choice = cross_choice
        self.judges_blank = kind is DetectorKind.CHAT
        self.gate = asyncio.Event()
        self.gate.set()
        self.calls: list[list[str]] = []
        self.context: DetectionContext | None = None
        self.cancelled = 0

    async def judge(self, windows: Sequence[str], context: DetectionContext) -> list[list[Detection]]:
        """See `Judge.judge`."""
        self.calls.append(list(windows))
        self.context = context
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return [self._scripted.detect(window) for window in windows]
