"""What the detectors say of the question and of the passages, before a model sees any of them."""

from collections.abc import Sequence
from dataclasses import replace

from servicekit.deadline import Deadline
from servicekit.errors import Blocked

from gateway.domain import Action, Detections, DetectorFailure, Direction, Passage, Turn, Verdict
from gateway.ports import Guardrails
from gateway.timeline import Timeline

WITHHELD = "(withheld)"
"""Stands for an old message that a detector stops: its place must not be empty, models differ in what they take."""

_CHECKED = ("user", "tool", "function")


class BlockedQuestion(Blocked):
    """A detector stops the question.

    Args:
        message: In words for the client.
        detections: What was found in the conversation.
    """

    def __init__(self, message: str, detections: tuple[Detections, ...]) -> None:
        super().__init__(message, field="messages")
        self.detections = detections


class Checks:
    """Puts the words of a turn, and those that it is answered from, through the detectors."""

    def __init__(self, guardrails: Guardrails) -> None:
        self._guardrails = guardrails

    async def of_input(
        self, turn: Turn, timeline: Timeline, deadline: Deadline
    ) -> tuple[Turn, tuple[Detections, ...]]:
        """The turn with its words as the detectors leave them.

        Users and tools are checked, however long ago they spoke, but only what came since the latest answer stops
        the request: one old message does not close a conversation for ever. It does not reach a model, either.

        Raises:
            BlockedQuestion: A detector stops it.
        """
        if not turn.detectors.input:
            return turn, ()
        spoken = [at for at, message in enumerate(turn.history) if message.role in _CHECKED]
        texts = [turn.history[at].text for at in spoken]
        if turn.question:
            spoken.append(len(turn.history))
            texts.append(turn.question)
        if not texts:
            return turn, ()
        with timeline.step("check input"):
            verdicts, failures = await self._guardrails.detect(
                turn.principal, Direction.INPUT, turn.detectors.input, texts, deadline
            )
        answered = max((at for at, message in enumerate(turn.history) if message.role == "assistant"), default=-1)
        history, question = list(turn.history), turn.question
        for at, verdict in zip(spoken, verdicts, strict=True):
            if verdict.action is Action.BLOCK and at > answered:
                raise BlockedQuestion(
                    f"The question was stopped by the guardrails: {_reason(verdict, failures)}.",
                    _detections(Direction.INPUT, spoken, verdicts, failures),
                )
            if at == len(history):
                question = _text_after(verdict, question)
            else:
                stopped = verdict.action is Action.BLOCK
                text = WITHHELD if stopped else _text_after(verdict, history[at].text)
                history[at] = replace(history[at], text=text)
        checked = replace(turn, history=tuple(history), question=question)
        return checked, _detections(Direction.INPUT, spoken, verdicts, failures)

    async def of_context(
        self, turn: Turn, passages: tuple[Passage, ...], timeline: Timeline, deadline: Deadline
    ) -> tuple[tuple[Passage, ...], tuple[Detections, ...]]:
        """The passages, less those that a detector stops: documents can carry instructions for the model."""
        if not turn.detectors.context or not passages:
            return passages, ()
        with timeline.step("check context"):
            verdicts, failures = await self._guardrails.detect(
                turn.principal,
                Direction.CONTEXT,
                turn.detectors.context,
                [passage.text for passage in passages],
                deadline,
            )
        kept = tuple(
            replace(passage, text=_text_after(verdict, passage.text))
            for passage, verdict in zip(passages, verdicts, strict=True)
            if verdict.action is not Action.BLOCK
        )
        return kept, _detections(Direction.CONTEXT, range(len(passages)), verdicts, failures)

    async def clears(self, turn: Turn, text: str, deadline: Deadline) -> bool:
        """Whether a model's words may be shown as they are."""
        if not turn.detectors.output:
            return True
        [verdict], _ = await self._guardrails.detect(
            turn.principal, Direction.OUTPUT, turn.detectors.output, [text], deadline
        )
        return verdict.action not in (Action.REDACT, Action.BLOCK)


def _text_after(verdict: Verdict, text: str) -> str:
    return verdict.redacted_text if verdict.action is Action.REDACT else text


def _detections(
    direction: Direction, items: Sequence[int], verdicts: Sequence[Verdict], failures: tuple[DetectorFailure, ...]
) -> tuple[Detections, ...]:
    found = [
        Detections(direction, item, verdict.findings)
        for item, verdict in zip(items, verdicts, strict=True)
        if verdict.findings
    ]
    if failures:
        found.append(Detections(direction, items[-1], (), failures))
    return tuple(found)


def _reason(verdict: Verdict, failures: tuple[DetectorFailure, ...]) -> str:
    names = [f.detection or f.detector_id for f in verdict.findings if f.action is Action.BLOCK]
    return ", ".join(dict.fromkeys(names or [f"the detector {failure.detector_id} failed" for failure in failures]))
