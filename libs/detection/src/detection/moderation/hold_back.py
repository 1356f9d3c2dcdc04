"""Decides which part of a growing text may be released under the rules of a request."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from detection.chunking.chunkers import Chunking
from detection.detectors.port import WHOLE_TEXT_LIMIT, DetectorStream, Judge, WholeTextStream
from detection.domain import Action, Detection, DetectionContext, Failure, Finding, Piece, Progress
from detection.moderation.cross_choice import CrossChoice, CrossChoicePart
from detection.moderation.metrics import FOUND, Hold, Work
from detection.moderation.rules import Rule, merged_spans, sort_key, strictest, with_merged_replacements
from detection.moderation.windowed import Windowed


@dataclass(frozen=True, slots=True)
class HoldLimits:
    """The limits on the held-back part of a growing text. Above a limit, the detector fails.

    Attributes:
        window: The maximum number of code points of a sentence.
        whole: The maximum number of code points of a text for detectors of whole texts.
    """

    window: int = 8192
    whole: int = WHOLE_TEXT_LIMIT

    def for_chunking(self, chunking: Chunking) -> int:
        """Return the limit on a window of this kind."""
        return self.whole if chunking is Chunking.WHOLE else self.window


@dataclass(frozen=True, slots=True)
class Scan:
    """The results of the quick detectors for a piece."""

    piece: Piece
    found: tuple[Finding, ...] = ()
    failures: tuple[Failure, ...] = ()
    blocked: bool = False


class _QuickRule:
    """A rule with a quick detector, and its state for one text."""

    __slots__ = ("decided", "rule", "stream", "whole", "work")

    def __init__(self, rule: Rule, stream: DetectorStream) -> None:
        self.rule = rule
        self.stream = stream
        self.decided = 0
        self.whole = isinstance(stream, WholeTextStream)
        self.work = Work(rule.detector_id)


class GrowingText:
    """One growing text under several rules.

    The text is cleared up to the position of the slowest protecting rule. Rules that only report hold back no text.
    A span to redact is never cleared in part. A finding is reported when its end is cleared. A finding about the
    whole text is reported when the whole text is judged and cleared.

    Args:
        number: The number of the choice.
        rules: The rules.
        context: The further input of detectors.
        chunking: The chunks in which the text is released; None: the text may be cut anywhere.
        holding: The limits on held-back text.
        ready: Called on the event loop when `collect` has a result.
        cross_choices: For each rule, the object that judges all choices together, or None.
        all_hold: The text also waits for rules that only report, except for those that judge whole texts.
        clears: Whether the text may be released; if not, the rules only judge it.
    """

    def __init__(
        self,
        number: int,
        rules: Sequence[Rule],
        context: DetectionContext,
        chunking: Chunking | None,
        holding: HoldLimits,
        ready: Callable[[], None],
        *,
        all_hold: bool = False,
        clears: bool = True,
        cross_choices: Sequence[CrossChoice | None] = (),
    ) -> None:
        self._number = number
        self._quick_rules: list[_QuickRule] = []
        self._windowed: list[Windowed | CrossChoicePart] = []
        self._all_hold = all_hold
        self._clears = clears
        for rule, cross_choice in zip(rules, cross_choices or [None] * len(rules), strict=True):
            detector = rule.detector
            if cross_choice is not None:
                self._windowed.append(cross_choice.add_choice(number))
            elif isinstance(detector, Judge):
                self._windowed.append(Windowed(rule, context, holding.for_chunking(detector.chunking), ready))
            else:
                self._quick_rules.append(_QuickRule(rule, detector.stream()))
        self._works = [quick_rule.work for quick_rule in self._quick_rules]
        self._hold = Hold()
        self._chunker = None if chunking is None else chunking.chunker()
        self._cuts: list[int] = []  # ends of chunks that are not cleared yet
        self._pending: list[Finding] = []  # findings that are not reported yet
        self._length = 0
        self._cleared = 0
        self._last = False
        self._finished = False

    @property
    def complete(self) -> bool:
        """Whether the last piece has arrived."""
        return self._last

    @property
    def undecided(self) -> int:
        """The number of code points that a quick rule will search again."""
        if self._last:
            return 0
        return self._length - min((quick_rule.decided for quick_rule in self._quick_rules), default=self._length)

    @property
    def waiting(self) -> int:
        """The number of code points that wait for a running detector."""
        return max((windowed.waiting for windowed in self._windowed), default=0)

    @property
    def busy(self) -> bool:
        """Whether a detector is running."""
        return any(windowed.busy for windowed in self._windowed)

    def scan(self, piece: Piece) -> Scan:
        """Run the quick detectors on a piece; may run in a thread."""
        self._last = piece.last
        self._length += len(piece.text)
        found: list[Finding] = []
        failures: list[Failure] = []
        blocked = False
        begin = time.perf_counter()
        for quick_rule in tuple(self._quick_rules):
            try:
                quick_rule.decided, detections = quick_rule.stream.feed(piece.text, piece.last)
            except Exception as error:  # a failed detector must not fail the request
                failures.append(quick_rule.rule.failure(error))
                blocked = blocked or quick_rule.rule.blocks_on(error)
                self._quick_rules.remove(quick_rule)
                quick_rule.work.failed(error)
            else:
                if detections:
                    found += quick_rule.rule.findings(detections)
                    quick_rule.work.outcome = FOUND
            now = time.perf_counter()
            quick_rule.work.seconds += now - begin
            begin = now
        return Scan(piece, tuple(found), tuple(failures), blocked)

    def apply(self, scan: Scan) -> list[Progress]:
        """Pass a scanned piece to the slow detectors and return the steps; runs on the event loop."""
        piece = scan.piece
        self._hold.grew(self._length)
        if self._chunker is not None:
            self._cuts += self._chunker.feed(piece.text, piece.last)
        if not self._windowed:
            return self._advance(list(scan.found), list(scan.failures), scan.blocked)
        return self._step_windows(
            lambda windowed: windowed.feed(piece.text, piece.last, piece.reply),
            scan,
        )

    def collect(self) -> list[Progress]:
        """Return the steps after results of slow detectors; runs on the event loop."""
        return self._step_windows(lambda windowed: windowed.collect(), Scan(Piece(self._number, "")))

    def close(self) -> None:
        """Stop the detectors and record their work."""
        for windowed in self._windowed:
            windowed.close()
        for work in self._works:
            work.end()
        self._hold.end()

    def _step_windows(
        self, step: Callable[[Windowed | CrossChoicePart], Sequence[Detection] | None], scan: Scan
    ) -> list[Progress]:
        found, failures, blocked = list(scan.found), list(scan.failures), scan.blocked
        for windowed in tuple(self._windowed):
            try:
                found += windowed.rule.findings(step(windowed) or ())
            except Exception as error:  # as in `scan`
                failures.append(windowed.rule.failure(error))
                blocked = blocked or windowed.rule.blocks_on(error)
                windowed.close()
                self._windowed.remove(windowed)
        return self._advance(found, failures, blocked)

    def _advance(self, found: list[Finding], failures: list[Failure], blocked: bool) -> list[Progress]:
        if found:
            blocking = sorted((finding for finding in found if finding.action is Action.BLOCK), key=sort_key)
            if blocking or blocked:
                return [self._progress(tuple(blocking), failures, blocks=True)]
            self._pending = sorted([*self._pending, *found], key=sort_key)
        elif blocked:
            return [self._progress((), failures, blocks=True)]
        before, finished = self._cleared, self._finished
        self._finished = self._last and all(windowed.done for windowed in self._windowed)
        steps = []
        for cleared in self._clearable():
            self._cleared = cleared
            self._hold.released(cleared)
            steps.append(self._progress(self._ready_findings(), ()))
        findings = self._ready_findings() if self._pending else ()
        ended = self._finished and not finished
        if findings or failures or (ended and self._cleared == before):
            steps.append(self._progress(findings, failures))
        if ended:
            steps[-1] = replace(steps[-1], fully_judged=True)
        return steps

    def _progress(
        self, findings: tuple[Finding, ...], failures: Sequence[Failure], *, blocks: bool = False
    ) -> Progress:
        action = Action.BLOCK if blocks else strictest(findings)
        return Progress(self._number, self._cleared, findings, action, tuple(failures))

    def _clearable(self) -> list[int]:
        """Return the positions up to which the text may be released now, ascending."""
        if not self._clears:
            return []
        cleared = self._length
        for quick_rule in self._quick_rules:
            if quick_rule.decided < cleared and self._waits_for(quick_rule.rule, whole=quick_rule.whole):
                cleared = quick_rule.decided
        for windowed in self._windowed:
            if windowed.decided < cleared and self._waits_for(windowed.rule, whole=windowed.whole):
                cleared = windowed.decided
        spans = merged_spans(self._pending) if self._pending else ()
        for start, end, _ in spans:
            if start < cleared < end:
                cleared = start
                break
        if cleared <= self._cleared:
            return []
        if self._chunker is None:
            return [cleared]
        cuts = [cut for cut in self._cuts if cut <= cleared]
        self._cuts = self._cuts[len(cuts) :]
        return [cut for cut in cuts if not any(start < cut < end for start, end, _ in spans)]

    def _waits_for(self, rule: Rule, *, whole: bool) -> bool:
        return rule.protects or (self._all_hold and not whole)

    def _ready_findings(self) -> tuple[Finding, ...]:
        ready: list[Finding] = []
        waiting: list[Finding] = []
        for finding in self._pending:
            end = finding.detection.end
            is_ready = self._finished and self._cleared == self._length if end is None else end <= self._cleared
            (ready if is_ready else waiting).append(finding)
        self._pending = waiting
        return with_merged_replacements(ready)
