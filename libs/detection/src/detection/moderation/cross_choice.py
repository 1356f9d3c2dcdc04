"""A rule whose detector judges all growing choices of an answer together."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from detection.chunking.chunkers import Window
from detection.detectors.port import DetectorFailed
from detection.domain import Detection, DetectionContext
from detection.moderation.judge_calls import call_judge
from detection.moderation.rules import Rule

_Found = list[list[Detection]]


class CrossChoice:
    """Collects the choices, and calls the detector when all choices are complete.

    Args:
        rule: The rule; its detector is a `Judge`.
        context: The further input of the detector.
        limit: The maximum number of code points of a text.
        ready: Called when `CrossChoicePart.collect` has a result.

    Attributes:
        task: The call of the detector; None before it begins.
    """

    def __init__(self, rule: Rule, context: DetectionContext, limit: int, ready: Callable[[], None]) -> None:
        self.rule = rule
        self.limit = limit
        self._context = context
        self._ready = ready
        self._parts: dict[int, CrossChoicePart] = {}
        self.task: asyncio.Task[_Found] | None = None

    def add_choice(self, number: int) -> "CrossChoicePart":
        """Add a choice, and return its state."""
        part = self._parts[number] = CrossChoicePart(self, number)
        return part

    def close(self, number: int) -> None:
        """Remove a choice; if the call of the detector has begun, cancel the call instead."""
        if self.task is None:
            self._parts.pop(number, None)
        else:
            self.task.cancel()

    def call_judge(self) -> None:
        """Call the detector once; all choices must be complete."""
        if self._parts and self.task is None:
            for index, number in enumerate(sorted(self._parts)):
                self._parts[number].index = index
            texts = [Window(0, self._parts[number].text) for number in sorted(self._parts)]
            self.task = asyncio.create_task(self._judge(texts))
            self.task.add_done_callback(self._finished)

    async def _judge(self, texts: Sequence[Window]) -> _Found:
        return shared_detections(await call_judge(self.rule, texts, self._context))

    def _finished(self, task: "asyncio.Task[_Found]") -> None:
        if not task.cancelled():
            task.exception()  # retrieve the exception, because `collect` may not be called again
        self._ready()


class CrossChoicePart:
    """One choice, with the interface of `Windowed`.

    Attributes:
        rule: The rule.
        decided: The number of judged code points.
        whole: True, because the detector judges whole texts.
        waiting: Always 0. The text waits for the other choices, so it must not stop the stream.
        text: The text so far.
        index: The index of the choice among all choices.
    """

    whole = True
    waiting = 0

    def __init__(self, cross_choice: CrossChoice, number: int) -> None:
        self.rule = cross_choice.rule
        self._number = number
        self.decided = 0
        self.text = ""
        self.index = 0
        self._cross_choice = cross_choice
        self._collected = False

    @property
    def busy(self) -> bool:
        """Whether the detector is running, or has a result that is not collected."""
        return self._cross_choice.task is not None and not self._collected

    @property
    def done(self) -> bool:
        """Whether the text is judged and the result collected."""
        return self._collected

    def feed(self, text: str, last: bool, reply: bytes) -> None:  # noqa: ARG002  # the interface of `Windowed`
        """Append a piece.

        Raises:
            DetectorFailed: The text is longer than the limit.
        """
        self.text += text
        if len(self.text) > self._cross_choice.limit:
            raise DetectorFailed(f"more than {self._cross_choice.limit} characters would have to be held back")

    def collect(self) -> list[Detection]:
        """Return the detections on the first call after the detector has finished, otherwise an empty list.

        Raises:
            DetectorFailed: The detector failed.
        """
        task = self._cross_choice.task
        if task is None or not task.done() or self._collected:
            return []
        self._collected = True
        found = task.result()
        self.decided = len(self.text)
        return found[self.index]

    def close(self) -> None:
        """Cancel the call of the detector."""
        self._cross_choice.close(self._number)


def shared_detections(answers: Sequence[Sequence[Detection]]) -> list[list[Detection]]:
    """Return, for each text, the detections in all texts; a detection in another text has no span."""
    return [
        [
            detection if own == other else replace(detection, start=None, end=None)
            for other, detections in enumerate(answers)
            for detection in detections
        ]
        for own in range(len(answers))
    ]
