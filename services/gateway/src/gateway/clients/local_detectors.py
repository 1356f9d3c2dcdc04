"""Run detectors in the gateway, with the library `detection`, which the guardrails service also uses.

Import this module only if detectors are needed, because its tables and its pattern engine load slowly.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property

import structlog
from causeway.guardrails.v1 import guardrails_pb2
from detection import domain as judging
from detection.chunking.chunkers import Chunking as Chunks
from detection.detectors.patterns.matching import Limits
from detection.detectors.port import Judge
from detection.moderation.catalogue import Catalogue
from detection.moderation.hold_back import HoldLimits
from detection.moderation.rules import Rule
from detection.moderation.session import Session
from detection.moderation.thread_pool import ThreadPool
from detection.moderation.whole_text import judge
from detection.shared import JudgingLimits, digest, shared_detectors
from servicekit import telemetry
from servicekit.deadline import Deadline
from servicekit.errors import CausewayError, DeadlineExceeded, Internal

from gateway.domain import (
    Action,
    Chunking,
    DetectionContext,
    Detector,
    DetectorFailure,
    Direction,
    Finding,
    Verdict,
)
from gateway.ports.answering import Clearance, Watch

_log = structlog.get_logger(__name__)
_tracer = telemetry.tracer(__name__)
_ACTIONS = {judging.Action[action.name]: action for action in Action}
_DIRECTIONS = {direction: judging.Direction[direction.name] for direction in Direction}
_CHUNKINGS = {None: None, Chunking.MINIMAL: None, Chunking.SENTENCE: Chunks.SENTENCE}
_ANSWER = judging.DetectionContext(judging.Direction.OUTPUT)

# Between two pauses, the gateway's event loop judges at most a quarter of the text that the service's event loop
# judges. This takes at most 2 ms with the library's own patterns (`patterns/named.py`) and 5 ms with other
# patterns, even for the slowest texts.
_INLINE_DIVISOR = 4
# The maximum number of pieces that the event loop judges between two pauses, even if the pieces are short.
_MAX_INLINE_PIECES = 64
# If one of the detectors is too slow to judge this number of code points without a pause, the service runs all of
# them.
_MIN_INLINE = 1024


class LocalDetectors:
    """A set of detectors that can judge in this process.

    Args:
        rules: The rules of the detectors.
        limits: The limits of the service.
        inline: The maximum number of code points that the event loop judges without a pause.
        workers: The threads that judge longer texts.
    """

    def __init__(self, rules: Sequence[Rule], limits: JudgingLimits, inline: int, workers: ThreadPool) -> None:
        self._rules = rules
        self._limits = limits
        self._inline = inline
        self._workers = workers

    def can_judge(self, texts: Sequence[str], context: DetectionContext) -> bool:
        """Return whether this process may judge the texts. The service judges or refuses longer texts."""
        return self.accepts_context(context) and sum(map(len, texts)) <= min(
            self._inline, self._limits.longest_text
        )

    def accepts_context(self, context: DetectionContext) -> bool:
        """Return whether the service would accept the context."""
        return not context.passages or sum(map(len, context.passages)) <= self._limits.longest_text

    async def detect(
        self, direction: Direction, texts: Sequence[str], deadline: Deadline, *, auxiliary: bool
    ) -> tuple[tuple[Verdict, ...], tuple[DetectorFailure, ...]]:
        """See `ports.answering.Guardrails.detect`."""
        deadline.remaining()
        rules = [rule for rule in self._rules if rule.judges_auxiliary] if auxiliary else self._rules
        with _tracer.start_as_current_span("detect"):
            context = judging.DetectionContext(_DIRECTIONS[direction])
            verdicts, failures = await judge(texts, rules, context, self._workers)
        return tuple(map(_verdict, verdicts)), _failures(failures)

    @contextmanager
    def watch(self, deadline: Deadline, chunking: Chunking | None) -> Iterator[Watch]:
        """See `ports.answering.Guardrails.watch`."""
        deadline.remaining()
        session = Session(
            self._rules,
            _ANSWER,
            _CHUNKINGS[chunking],
            self._limits.holding,
            all_hold=chunking is not None,
            inline_limit=self._inline,
        )
        span = _tracer.start_span("detect")
        try:
            yield _LocalWatch(session, self._limits, self._inline, self._workers, deadline)
        finally:
            session.close()
            span.end()


class LocalLibrary:
    """The detectors of the guardrails service that this process can run.

    Args:
        listed: The detectors and limits of the service.
        workers: The threads that judge long pieces of growing texts.

    Attributes:
        detector_ids: The ids of the detectors.
    """

    def __init__(self, listed: guardrails_pb2.ListDetectorsResponse, workers: ThreadPool) -> None:
        own_digest, limits = digest(), listed.limits
        shared = [detector.detector_id for detector in listed.detectors if detector.library_digest == own_digest]
        self.detector_ids = frozenset(shared if listed.HasField("limits") else ())
        self._limits = JudgingLimits(
            limits.longest_text,
            HoldLimits(limits.held_back, limits.held_whole),
            Limits(held_back=limits.held_back, detections=limits.detections, seconds=limits.seconds),
        )
        self._workers = workers

    @cached_property
    def _catalogue(self) -> Catalogue:
        factories = shared_detectors(self._limits.patterns)
        return Catalogue([factory for factory in factories if factory.detector_id in self.detector_ids])

    def has_same_detectors(self, other: "LocalLibrary | None") -> bool:
        """Return whether another library has the same detectors and limits."""
        return other is not None and (self.detector_ids, self._limits) == (
            other.detector_ids,
            other._limits,
        )

    def build(self, detectors: Sequence[Detector]) -> LocalDetectors | None:
        """Build detectors, or return None if the service must judge instead. Compiling patterns takes time."""
        if not {detector.detector_id for detector in detectors} <= self.detector_ids:
            return None
        try:
            rules = self._catalogue.rules([_spec(detector) for detector in detectors])
        except CausewayError:
            return None  # the service reports the error to the client
        # A `Judge` calls a model, a process or a server, so only the service runs it.
        limits = [0 if isinstance(rule.detector, Judge) else rule.detector.inline_limit for rule in rules]
        inline = min(limits) // _INLINE_DIVISOR
        if inline < _MIN_INLINE:
            return None
        # The detectors share the limit, because each detector reads the text.
        return LocalDetectors(rules, self._limits, inline // len(rules), self._workers)


class _LocalWatch:
    """`ports.answering.Watch` in this process.

    `feed` returns all clearances, so `clearances` yields none. `feed` ignores input after a block or a failure.
    """

    def __init__(
        self, session: Session, limits: JudgingLimits, inline: int, workers: ThreadPool, deadline: Deadline
    ) -> None:
        self._session = session
        self._limits = limits
        self._inline = inline
        self._workers = workers
        self._deadline = deadline
        self._since_pause = 0  # the number of code points judged since the last pause for other tasks
        self._ended = asyncio.Event()
        self._failure: CausewayError | None = None

    async def feed(
        self, choice: int, text: str, *, last: bool = False, reply_json: bytes = b"", auxiliary: bool = False
    ) -> Sequence[Clearance]:
        if self._ended.is_set():
            return ()
        session = self._session
        pieces = (judging.Piece(choice, text, last, reply_json, auxiliary),)
        try:
            self._limits.check(len(text), "piece.text")
            if session.fits_inline(pieces):
                await self._pause(len(text))
                steps = session.feed(pieces)
            else:
                steps = await self._workers.run(False, session.feed, pieces)
        except CausewayError as error:  # `clearances` raises it, like an error of the service
            self._end(error)
            return ()
        except Exception:  # the client receives an internal error, as from the service
            _log.exception("the gateway could not judge a text")
            self._end(Internal())
            return ()
        if session.blocked:
            self._end()
        return [_clearance(step) for step in steps]

    async def _pause(self, size: int) -> None:
        """Let other tasks run first if the loop would otherwise judge too much text without a pause."""
        size = max(size, self._inline // _MAX_INLINE_PIECES)
        self._since_pause += size
        if self._since_pause > self._inline:
            self._since_pause = size
            await asyncio.sleep(0)

    async def end(self) -> None:
        self._ended.set()

    async def clearances(self) -> AsyncGenerator[Clearance, None]:
        try:
            async with asyncio.timeout(self._deadline.timeout()):
                await self._ended.wait()
        except TimeoutError:
            raise DeadlineExceeded("The request took longer than its deadline.") from None
        if self._failure is not None:
            raise self._failure
        return
        yield  # type: ignore[unreachable]  # makes it a generator

    def _end(self, failure: CausewayError | None = None) -> None:
        self._failure = failure
        self._ended.set()


def _spec(detector: Detector) -> judging.DetectorSpec:
    on_error = judging.OnError.ALLOW if detector.allow_on_error else judging.OnError.BLOCK
    action = judging.Action[detector.action.name]
    return judging.DetectorSpec(detector.detector_id, action, on_error, detector.params_json)


def _clearance(step: judging.Progress) -> Clearance:
    return Clearance(
        step.choice,
        step.cleared_until,
        _findings(step.findings) if step.findings else (),
        step.action is judging.Action.BLOCK,
        _failures(step.failures) if step.failures else (),
        step.fully_judged,
    )


def _verdict(verdict: judging.Verdict) -> Verdict:
    return Verdict(_ACTIONS.get(verdict.action), _findings(verdict.findings), verdict.redacted_text)


def _findings(findings: Iterable[judging.Finding]) -> tuple[Finding, ...]:
    return tuple(
        Finding(
            detector_id=finding.detector_id,
            detection_type=finding.detection.type,
            detection=finding.detection.name,
            score=finding.detection.score,
            action=_ACTIONS[finding.action],
            start=finding.detection.start,
            end=finding.detection.end,
            text=finding.detection.text,
            replacement=finding.replacement,
            extra_json=finding.detection.extra,
        )
        for finding in findings
    )


def _failures(failures: Iterable[judging.Failure]) -> tuple[DetectorFailure, ...]:
    return tuple(
        DetectorFailure(failure.detector_id, failure.message, failure.status, failure.not_asked)
        for failure in failures
    )
