"""A rule whose detector is asked once about all choices of an answer, while they grow."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from guardrails.chunking.chunkers import Window
from guardrails.detectors.port import DetectorFailed
from guardrails.domain import Detection, DetectionContext
from guardrails.moderation.judge_calls import ask
from guardrails.moderation.rules import Rule

_Found = list[list[Detection]]


class CrossChoice:
    """Gathers the choices, and asks when all are complete.

    Args:
        rule: The rule; its detector is a `Judge`.
        context: What the detector may look at beside the texts.
        limit: Code points that a text may have.
        ready: Called when there is something for `CrossChoicePart.collect`.
    """

    def __init__(self, rule: Rule, context: DetectionContext, limit: int, ready: Callable[[], None]) -> None:
        self.rule = rule
        self.limit = limit
        self._context = context
        self._ready = ready
        self._parts: dict[int, CrossChoicePart] = {}
        self.task: asyncio.Task[_Found] | None = None

    def part(self, number: int) -> "CrossChoicePart":
        """A further choice."""
        part = self._parts[number] = CrossChoicePart(self, number)
        return part

    def close(self, number: int) -> None:
        """A choice is not to be judged, or none of them any more."""
        if self.task is None:
            self._parts.pop(number, None)
        else:
            self.task.cancel()

    def ask(self) -> None:
        """There will be no further choice, and no further piece of those there are."""
        if self._parts and self.task is None:
            for at, number in enumerate(sorted(self._parts)):
                self._parts[number].place = at
            texts = [Window(0, self._parts[number].text) for number in sorted(self._parts)]
            self.task = asyncio.create_task(self._asked(texts))
            self.task.add_done_callback(self._told)

    async def _asked(self, texts: Sequence[Window]) -> _Found:
        return spread(await ask(self.rule, texts, self._context))

    def _told(self, task: "asyncio.Task[_Found]") -> None:
        if not task.cancelled():
            task.exception()  # looked at: `collect` may never be called again
        self._ready()


class CrossChoicePart:
    """One choice of it; it is to a text what `Windowed` is.

    Attributes:
        rule: The rule.
        decided: Code points that are judged.
        whole: The text is judged as a whole.
        waiting: Nothing that would have to stop the text: it waits for the other choices.
        text: As far as it has come.
        place: Among the choices.
    """

    whole = True
    waiting = 0

    def __init__(self, cross_choice: CrossChoice, number: int) -> None:
        self.rule = cross_choice.rule
        self._number = number
        self.decided = 0
        self.text = ""
        self.place = 0
        self._cross_choice = cross_choice
        self._collected = False

    @property
    def busy(self) -> bool:
        """The detector is at work, or has something to tell."""
        return self._cross_choice.task is not None and not self._collected

    @property
    def done(self) -> bool:
        """All is judged, and collected."""
        return self._collected

    def feed(self, text: str, last: bool, reply: bytes) -> None:  # noqa: ARG002  # the interface of `Windowed`
        """Takes a piece.

        Raises:
            DetectorFailed: The text is longer than the limit.
        """
        self.text += text
        if len(self.text) > self._cross_choice.limit:
            raise DetectorFailed(f"more than {self._cross_choice.limit} characters would have to be held back")

    def collect(self) -> list[Detection]:
        """What was found, once.

        Raises:
            DetectorFailed: The detector failed.
        """
        task = self._cross_choice.task
        if task is None or not task.done() or self._collected:
            return []
        self._collected = True
        found = task.result()
        self.decided = len(self.text)
        return found[self.place]

    def close(self) -> None:
        """Stops asking."""
        self._cross_choice.close(self._number)


def spread(answers: Sequence[Sequence[Detection]]) -> list[list[Detection]]:
    """All that is found counts for every text; in the others it has no span."""
    return [
        [
            detection if own == other else replace(detection, start=None, end=None)
            for other, detections in enumerate(answers)
            for detection in detections
        ]
        for own in range(len(answers))
    ]
