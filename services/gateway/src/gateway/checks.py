"""What the detectors say of the question and of the passages, before a model sees any of them."""

from collections.abc import Sequence
from dataclasses import replace

from servicekit.deadline import Deadline
from servicekit.errors import Blocked, DeadlineExceeded, RateLimited, Unavailable

from gateway import surroundings
from gateway.domain import (
    Action,
    Detections,
    Detector,
    DetectorFailure,
    Direction,
    Finding,
    InputScope,
    Passage,
    Turn,
    Verdict,
)
from gateway.held import withheld
from gateway.message_places import in_request
from gateway.ports import Guardrails
from gateway.timeline import QUERY, Timeline

WITHHELD = "(withheld)"
"""Stands for an old message that a detector stops: its place must not be empty, models differ in what they take."""

_CHECKED = ("user", "tool", "function")
_SYSTEM = ("system", "developer")


class BlockedQuestion(Blocked):
    """A detector stops the question.

    Args:
        message: In words for the client.
        detections: What was found in the conversation.
    """

    def __init__(self, message: str, detections: tuple[Detections, ...]) -> None:
        super().__init__(message, field="messages")
        self.detections = detections


class Unjudged(Unavailable, BlockedQuestion):
    """A question is stopped because a detector that must judge it failed, and nothing else is wrong with it."""


class UnjudgedInTime(DeadlineExceeded, BlockedQuestion):
    """Likewise: it took too long."""


class UnjudgedForNow(RateLimited, BlockedQuestion):
    """Likewise: its server has too much to do."""


_UNJUDGED: dict[int, type[BlockedQuestion]] = {429: UnjudgedForNow, 504: UnjudgedInTime}


class Checks:
    """Puts the words of a turn, and those that it is answered from, through the detectors."""

    def __init__(self, guardrails: Guardrails) -> None:
        self._guardrails = guardrails

    async def of_input(
        self, turn: Turn, timeline: Timeline, deadline: Deadline
    ) -> tuple[Turn, tuple[Detections, ...]]:
        """The turn with its words as the detectors leave them; those that only report are not asked here.

        Users and tools are checked, however long ago they spoke, but only what came since the latest answer stops
        the request: one old message does not close a conversation for ever. It does not reach a model, either.
        `Turn.input_scope` may say otherwise.

        Raises:
            BlockedQuestion: A detector stops it.
        """
        return await self._of_input(turn, changing(turn), "check input", timeline, deadline)

    async def reports(self, turn: Turn, timeline: Timeline, deadline: Deadline) -> tuple[Detections, ...]:
        """What the detectors find in the words of a turn that only report.

        Raises:
            BlockedQuestion: One of them failed, and must not be passed over.
        """
        _, found = await self._of_input(turn, reporting(turn), "report on input", timeline, deadline)
        return found

    async def _of_input(
        self, turn: Turn, detectors: tuple[Detector, ...], step: str, timeline: Timeline, deadline: Deadline
    ) -> tuple[Turn, tuple[Detections, ...]]:
        spoken = _spoken(turn)
        texts = [turn.history[at].text if at < len(turn.history) else turn.question for at in spoken]
        if not (detectors and texts):
            return turn, ()
        with timeline.step(step):
            verdicts, failures = await self._guardrails.detect(
                turn.principal, Direction.INPUT, detectors, texts, deadline, surroundings.of_turn(turn)
            )
        found = in_request(turn, _detections(Direction.INPUT, spoken, verdicts, failures))
        timeline.detections += found
        answered = _answered(turn)
        history, question = list(turn.history), turn.question
        for at, verdict in zip(spoken, verdicts, strict=True):
            if verdict.action is Action.BLOCK and at > answered:
                raise _stopped(verdict, failures, found)
            if at == len(history):
                question = _text_after(verdict, question)
            else:
                stopped = verdict.action is Action.BLOCK
                text = WITHHELD if stopped else _text_after(verdict, history[at].text)
                history[at] = replace(history[at], text=text)
        return replace(turn, history=tuple(history), question=question), found

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
                surroundings.of_turn(turn),
            )
        kept = tuple(
            _with_text(passage, _text_after(verdict, passage.text))
            for passage, verdict in zip(passages, verdicts, strict=True)
            if verdict.action is not Action.BLOCK
        )
        found = _detections(Direction.CONTEXT, range(len(passages)), verdicts, failures)
        timeline.detections += found
        return kept, found

    async def clears(self, turn: Turn, query: str, timeline: Timeline, deadline: Deadline) -> bool:
        """Whether a search query that a model made may be shown as it is."""
        if not turn.detectors.output:
            return True
        verdicts, failures = await self._guardrails.detect(
            turn.principal,
            Direction.OUTPUT,
            turn.detectors.output,
            [query],
            deadline,
            surroundings.of_query(turn),
        )
        timeline.detections += _detections(Direction.OUTPUT, (QUERY,), verdicts, failures)
        [verdict] = verdicts
        return verdict.action not in (Action.REDACT, Action.BLOCK)


def changing(turn: Turn) -> tuple[Detector, ...]:
    """The detectors of a turn's words that may change or stop it."""
    return tuple(each for each in turn.detectors.input if each.action is not Action.REPORT)


def reporting(turn: Turn) -> tuple[Detector, ...]:
    """The others."""
    return tuple(each for each in turn.detectors.input if each.action is Action.REPORT)


def _spoken(turn: Turn) -> list[int]:
    """Numbers of the messages that are judged; the question's is behind them all."""
    everything = [*(message.role for message in turn.history), *(["user"] if turn.question else [])]
    if turn.input_scope is InputScope.LAST:
        return [len(everything) - 1] if everything else []
    checked = (*_CHECKED, *_SYSTEM) if turn.input_scope is InputScope.ALL else _CHECKED
    return [at for at, role in enumerate(everything) if role in checked]


def _answered(turn: Turn) -> int:
    """Number of the latest answer; what stands behind it stops a request, as does what alone is judged."""
    if turn.input_scope is InputScope.LAST:
        return -1
    return max((at for at, message in enumerate(turn.history) if message.role == "assistant"), default=-1)


def _text_after(verdict: Verdict, text: str) -> str:
    return verdict.redacted_text if verdict.action is Action.REDACT else text


def _with_text(passage: Passage, text: str) -> Passage:
    """The passage with another text; of its captions, which are sentences of it, those that still stand there."""
    if text == passage.text:
        return passage
    return replace(passage, text=text, captions=tuple(each for each in passage.captions if each in text))


def _stopped(
    verdict: Verdict, failures: tuple[DetectorFailure, ...], found: tuple[Detections, ...]
) -> BlockedQuestion:
    names = [f.detection or f.detector_id for f in verdict.findings if f.action is Action.BLOCK]
    if names or not failures:
        reason = ", ".join(dict.fromkeys(names))
        return BlockedQuestion(f"The question was stopped by the guardrails: {reason}.", found)
    reason = ", ".join(dict.fromkeys(f"the detector {failure.detector_id} failed" for failure in failures))
    error = _UNJUDGED.get(failures[0].status, Unjudged)
    return error(f"The question cannot be judged by the guardrails: {reason}.", found)


def _detections(
    direction: Direction, items: Sequence[int], verdicts: Sequence[Verdict], failures: tuple[DetectorFailure, ...]
) -> tuple[Detections, ...]:
    found = [
        Detections(direction, item, _shown(direction, verdict))
        for item, verdict in zip(items, verdicts, strict=True)
        if verdict.findings
    ]
    if failures:
        found.append(Detections(direction, items[-1], (), failures))
    return tuple(found)


def _shown(direction: Direction, verdict: Verdict) -> tuple[Finding, ...]:
    """The findings; what a client did not say itself is not told by those beside what was taken out."""
    if direction is Direction.INPUT:
        return verdict.findings
    taken = [(f.start, f.end) for f in verdict.findings if f.action is not Action.REPORT]
    return withheld(verdict.findings, [(s, e) for s, e in taken if s is not None and e is not None])
