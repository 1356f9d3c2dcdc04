"""Check the question and the passages with detectors before a model receives them."""

from collections.abc import Sequence
from dataclasses import replace

from servicekit.deadline import Deadline
from servicekit.errors import Blocked, DeadlineExceeded, RateLimited, Unavailable

from gateway.answering import detection_context
from gateway.answering.hold_back import mark_withheld
from gateway.answering.message_positions import in_request
from gateway.answering.request_texts import WITHHELD, RequestTexts
from gateway.answering.timeline import QUERY, Timeline
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
from gateway.ports.answering import Guardrails

_CHECKED = ("user", "tool", "function")
_SYSTEM = ("system", "developer")


class BlockedQuestion(Blocked):
    """A detector blocks the question.

    Args:
        message: The message for the client.
        detections: The findings in the conversation.
    """

    def __init__(self, message: str, detections: tuple[Detections, ...]) -> None:
        super().__init__(message, field="messages")
        self.detections = detections


class RequiredDetectorFailed(Unavailable, BlockedQuestion):
    """The question is refused only because a detector that must judge it failed."""


class RequiredDetectorTimedOut(DeadlineExceeded, BlockedQuestion):
    """The question is refused only because a detector took too long."""


class RequiredDetectorOverloaded(RateLimited, BlockedQuestion):
    """The question is refused only because a detector's server is overloaded."""


_DETECTOR_ERRORS: dict[int, type[BlockedQuestion]] = {
    429: RequiredDetectorOverloaded,
    504: RequiredDetectorTimedOut,
}
"""The error by the HTTP status of the failed detector."""


class Checks:
    """Submits the texts of a turn, and the passages for its answer, to the detectors."""

    def __init__(self, guardrails: Guardrails) -> None:
        self._guardrails = guardrails

    async def check_input(
        self, turn: Turn, timeline: Timeline, deadline: Deadline
    ) -> tuple[Turn, tuple[Detections, ...]]:
        """Return the turn after redaction, and the findings.

        `report_on_input` calls the detectors that only report.

        The detectors judge all messages of users and tools. Only the messages after the latest answer can block the
        request, because an old message must not block a conversation permanently. A blocked old message does not
        reach the model either. `Turn.detection.input_scope` can select other messages. A policy's detectors judge
        all messages, including those of the system and the assistant. They also judge the other parts of the
        request that the model receives.

        Raises:
            BlockedQuestion: A detector blocks the turn.
        """
        if not changing(turn):
            return turn, ()
        turn, found = await self._check_other_parts(turn, timeline, deadline)
        turn, more = await self._check_messages(turn, changing(turn), "check input", timeline, deadline)
        return turn, found + more

    async def _check_other_parts(
        self, turn: Turn, timeline: Timeline, deadline: Deadline
    ) -> tuple[Turn, tuple[Detections, ...]]:
        """Return the turn after redaction of its parts other than the texts of its messages, and the findings.

        Raises:
            BlockedQuestion: A detector blocks the turn.
        """
        detectors = changing(turn)
        policy_detectors = tuple(detector for detector in detectors if not detector.requested)
        found: tuple[Detections, ...] = ()
        for group, members in ((policy_detectors, True), (detectors, False)):
            positions = [at for _, group_positions in _groups(turn, group) for at in group_positions]
            answered = min(_latest_answer(turn), _count(turn) - 2)  # the last message is new
            others = RequestTexts(turn, positions, members=members, answered=answered) if group else None
            if others is None or not others.texts:
                continue
            with timeline.step("check input"):
                verdicts, failures = await self._guardrails.detect(
                    turn.principal, Direction.INPUT, group, others.texts, deadline, auxiliary=True
                )
            after, results = others.take(verdicts)
            if failures:
                results.append(Detections(Direction.INPUT, _count(turn) - 1, (), failures))
            found += in_request(turn, results)
            timeline.detections += in_request(turn, results)
            if (blocking := others.blocking(verdicts)) is not None:
                raise _blocked(blocking, failures, found)
            turn = after
        return turn, found

    async def report_on_input(self, turn: Turn, timeline: Timeline, deadline: Deadline) -> tuple[Detections, ...]:
        """Return the findings of the detectors that only report on the texts of a turn.

        Raises:
            BlockedQuestion: A required detector failed.
        """
        _, found = await self._check_messages(turn, reporting(turn), "report on input", timeline, deadline)
        return found

    async def _check_messages(
        self, turn: Turn, detectors: tuple[Detector, ...], step: str, timeline: Timeline, deadline: Deadline
    ) -> tuple[Turn, tuple[Detections, ...]]:
        groups = _groups(turn, detectors)
        if not groups:
            return turn, ()
        context = detection_context.of_turn(turn)
        with timeline.step(step):
            results = [
                await self._guardrails.detect(
                    turn.principal,
                    Direction.INPUT,
                    group,
                    [turn.history[at].text if at < len(turn.history) else turn.question for at in group_positions],
                    deadline,
                    context,
                )
                for group, group_positions in groups
            ]
        unsorted_positions = [at for _, group_positions in groups for at in group_positions]
        unsorted_verdicts = [verdict for group_verdicts, _ in results for verdict in group_verdicts]
        in_order = sorted(zip(unsorted_positions, unsorted_verdicts, strict=True), key=lambda pair: pair[0])
        positions, verdicts = [at for at, _ in in_order], [verdict for _, verdict in in_order]
        failures = tuple(dict.fromkeys(failure for _, group_failures in results for failure in group_failures))
        found = in_request(turn, _detections(Direction.INPUT, positions, verdicts, failures))
        timeline.detections += found
        answered, last = _latest_answer(turn), _count(turn) - 1
        history, question = list(turn.history), turn.question
        for at, verdict in zip(positions, verdicts, strict=True):
            if verdict.action is Action.BLOCK and (at > answered or at == last):
                raise _blocked(verdict, failures, found)
            if at == len(history):
                question = _text_after(verdict, question)
            else:
                is_blocked = verdict.action is Action.BLOCK
                text = WITHHELD if is_blocked else _text_after(verdict, history[at].text)
                history[at] = replace(history[at], text=text)
        return replace(turn, history=tuple(history), question=question), found

    async def check_context(
        self, turn: Turn, passages: tuple[Passage, ...], timeline: Timeline, deadline: Deadline
    ) -> tuple[tuple[Passage, ...], tuple[Detections, ...]]:
        """Return the redacted passages that no context detector blocks, and the findings.

        Documents can contain prompt injections.
        """
        return await self.check_passages(turn, Direction.CONTEXT, passages, timeline, deadline)

    async def check_passages(
        self,
        turn: Turn,
        direction: Direction,
        passages: tuple[Passage, ...],
        timeline: Timeline,
        deadline: Deadline,
    ) -> tuple[tuple[Passage, ...], tuple[Detections, ...]]:
        """Return the redacted passages that no detector of the direction blocks, and the findings.

        The direction is `OUTPUT` if the passages are the answer.
        """
        texts = [passage.text for passage in passages]
        verdicts, found = await self.judge(turn, direction, texts, timeline, deadline)
        if not verdicts:
            return passages, ()
        allowed = tuple(
            _with_text(passage, _text_after(verdict, passage.text))
            for passage, verdict in zip(passages, verdicts, strict=True)
            if verdict.action is not Action.BLOCK
        )
        return allowed, found

    async def judge(
        self, turn: Turn, direction: Direction, texts: Sequence[str], timeline: Timeline, deadline: Deadline
    ) -> tuple[tuple[Verdict, ...], tuple[Detections, ...]]:
        """Return a verdict for each text, and the findings. Without detectors of this direction, return none."""
        detectors = getattr(turn.detectors, direction.value)
        if not detectors or not texts:
            return (), ()
        with timeline.step(f"check {direction.value}"):
            verdicts, failures = await self._guardrails.detect(
                turn.principal, direction, detectors, texts, deadline, detection_context.of_turn(turn)
            )
        found = _detections(direction, range(len(texts)), verdicts, failures)
        timeline.detections += found
        return verdicts, found

    async def clears_query(self, turn: Turn, query: str, timeline: Timeline, deadline: Deadline) -> bool:
        """Return whether clients may receive the unchanged text of a search query that a model wrote."""
        if not turn.detectors.output:
            return True
        verdicts, failures = await self._guardrails.detect(
            turn.principal,
            Direction.OUTPUT,
            turn.detectors.output,
            [query],
            deadline,
            detection_context.of_query(turn),
        )
        timeline.detections += _detections(Direction.OUTPUT, (QUERY,), verdicts, failures)
        [verdict] = verdicts
        return verdict.action not in (Action.REDACT, Action.BLOCK)


def changing(turn: Turn) -> tuple[Detector, ...]:
    """Return the input detectors that may change or block the turn."""
    return tuple(detector for detector in turn.detectors.input if detector.action is not Action.REPORT)


def reporting(turn: Turn) -> tuple[Detector, ...]:
    """Return the input detectors that only report."""
    return tuple(detector for detector in turn.detectors.input if detector.action is Action.REPORT)


def _groups(turn: Turn, detectors: tuple[Detector, ...]) -> list[tuple[tuple[Detector, ...], list[int]]]:
    """Return groups of detectors, each with the numbers of the messages that the group judges.

    No group is empty, and no message is in two groups. The question has the number after the history's last number.
    """
    roles = [*(message.role for message in turn.history), *(["user"] if turn.question else [])]
    checked = (*_CHECKED, *_SYSTEM) if turn.detection.input_scope is InputScope.ALL else _CHECKED
    positions = [at for at, role in enumerate(roles) if role in checked]
    if (last := _only_position(turn)) is not None:
        positions = [last]
    policy_detectors = tuple(detector for detector in detectors if not detector.requested)
    # A policy judges all messages that a request sends to a model, including the assistant's messages.
    other_positions = [at for at in range(len(roles)) if at not in positions]
    groups = [(policy_detectors, other_positions), (detectors, positions)]
    return [(group, group_positions) for group, group_positions in groups if group and group_positions]


def _only_position(turn: Turn) -> int | None:
    """Return the number of the last message if the scope limits the detectors to that message, or None."""
    count = _count(turn)
    return count - 1 if count and turn.detection.input_scope is InputScope.LAST else None


def _count(turn: Turn) -> int:
    """Return the number of messages of a turn."""
    return len(turn.history) + bool(turn.question)


def _latest_answer(turn: Turn) -> int:
    """Return the number of the latest answer, or -1 if there is none."""
    return max((at for at, message in enumerate(turn.history) if message.role == "assistant"), default=-1)


def _text_after(verdict: Verdict, text: str) -> str:
    return verdict.redacted_text if verdict.action is Action.REDACT else text


def _with_text(passage: Passage, text: str) -> Passage:
    """Return the passage with another text, and with the captions that the text still contains."""
    if text == passage.text:
        return passage
    return replace(passage, text=text, captions=tuple(caption for caption in passage.captions if caption in text))


def _blocked(
    verdict: Verdict, failures: tuple[DetectorFailure, ...], found: tuple[Detections, ...]
) -> BlockedQuestion:
    names = [f.detection or f.detector_id for f in verdict.findings if f.action is Action.BLOCK]
    if names or not failures:
        reason = ", ".join(dict.fromkeys(names))
        return BlockedQuestion(f"The question was stopped by the guardrails: {reason}.", found)
    reason = ", ".join(dict.fromkeys(f"the detector {failure.detector_id} failed" for failure in failures))
    error = _DETECTOR_ERRORS.get(failures[0].status, RequiredDetectorFailed)
    return error(f"The question cannot be judged by the guardrails: {reason}.", found)


def _detections(
    direction: Direction, items: Sequence[int], verdicts: Sequence[Verdict], failures: tuple[DetectorFailure, ...]
) -> tuple[Detections, ...]:
    found = [
        Detections(direction, item, _findings_for_clients(direction, verdict))
        for item, verdict in zip(items, verdicts, strict=True)
        if verdict.findings
    ]
    if failures:
        found.append(Detections(direction, items[-1], (), failures))
    return tuple(found)


def _findings_for_clients(direction: Direction, verdict: Verdict) -> tuple[Finding, ...]:
    """Return the findings. A finding that would reveal text that another finding redacts is marked as withheld."""
    if direction is Direction.INPUT:
        return verdict.findings
    spans = [(f.start, f.end) for f in verdict.findings if f.action is not Action.REPORT]
    return mark_withheld(verdict.findings, [(s, e) for s, e in spans if s is not None and e is not None])
