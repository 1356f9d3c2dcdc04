"""Applies a rule with a slow detector to one text that arrives in pieces."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

from detection.chunking.chunkers import Chunking, TooLong, Window, Windows
from detection.detectors.port import DetectorFailed, Judge
from detection.domain import Detection, DetectionContext
from detection.moderation.judge_calls import call_judge
from detection.moderation.rules import Rule

_MAX_WINDOWS = 32  # windows in one call of the detector


class Windowed:
    """Divides a growing text into windows, and passes them to a slow detector in order, with one call at a time.

    Windows that arrive during a call wait. The next call judges up to 32 of them together.

    Args:
        rule: The rule; its detector is a `Judge`.
        context: The input of the detector in addition to the text.
        limit: The maximum number of code points of a window.
        ready: Called when `collect` may have new results, because a call has ended or the chunker has found an end.

    Attributes:
        rule: The rule.
        decided: The number of code points from the start of the text that the detector has judged.
        whole: Whether the detector judges the text only as a whole.
    """

    def __init__(self, rule: Rule, context: DetectionContext, limit: int, ready: Callable[[], None]) -> None:
        assert isinstance(rule.detector, Judge)
        self.rule = rule
        self.decided = 0
        self._judge = rule.detector
        self.whole = self._judge.chunking is Chunking.WHOLE
        self._context = context
        self._windows = Windows(self._judge.chunker(ready), limit)
        self._limit = limit
        self._ready = ready
        self._queue: list[Window] = []
        self._judging: list[Window] = []
        self._task: asyncio.Task[list[list[Detection]]] | None = None
        self._last = False

    @property
    def waiting(self) -> int:
        """The number of code points that the chunker has not processed, or whose windows are not judged yet.

        It is 0 after the last piece.
        """
        if self._last:
            return 0
        return self._windows.waiting + sum(len(window.text) for window in (*self._judging, *self._queue))

    @property
    def busy(self) -> bool:
        """Whether the detector or its chunker is running."""
        return self._task is not None or (self._last and not self._windows.complete)

    @property
    def done(self) -> bool:
        """Whether the whole text is judged and all results are collected."""
        return self._last and self._task is None and not self._queue and self._windows.complete

    def feed(self, text: str, last: bool, reply: bytes) -> None:
        """Append a piece of the text, and start a call if a window is complete.

        Args:
            text: The piece.
            last: Whether the text ends with this piece.
            reply: The text's entry in `DetectionContext.replies`; used only with the last piece.

        Raises:
            DetectorFailed: A window is longer than the limit, or the chunker failed.
        """
        self._cut(text, last)
        if last:
            self._last = True
            self._context = replace(self._context, replies=(reply,))
            if self._judge.judges_blank and not self._queue:
                self._queue = [Window(0, "")]
        self._call_judge()

    def collect(self) -> list[Detection]:
        """Return the detections of the call if it has finished, and start the next call.

        Raises:
            DetectorFailed: The detector or the chunker failed, or a window is longer than the limit.
        """
        if not self._windows.complete:
            self._cut("", last=False)
            self._call_judge()
        if self._task is None or not self._task.done():
            return []
        task, self._task = self._task, None
        found = task.result()
        self.decided = self._judging[-1].start + len(self._judging[-1].text)
        self._judging = []
        self._call_judge()
        return [detection for detections in found for detection in detections]

    def close(self) -> None:
        """Cancel the running call, and discard the waiting windows."""
        self._queue = []
        self._windows.close()
        if self._task is not None:
            self._task.cancel()

    def _cut(self, text: str, last: bool) -> None:
        try:
            self._queue += self._windows.feed(text, last)
        except TooLong:
            raise DetectorFailed(f"more than {self._limit} characters would have to be held back") from None

    def _call_judge(self) -> None:
        if self._queue and self._task is None:
            self._judging, self._queue = self._queue[:_MAX_WINDOWS], self._queue[_MAX_WINDOWS:]
            self._task = asyncio.create_task(call_judge(self.rule, self._judging, self._context))
            self._task.add_done_callback(self._finished)

    def _finished(self, task: "asyncio.Task[list[list[Detection]]]") -> None:
        if not task.cancelled():
            task.exception()  # retrieve the exception, because `collect` may not be called again
        self._ready()
