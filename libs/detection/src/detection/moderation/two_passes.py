"""Judges a text in two passes, because a replacement and the text beside it can form a new match.

For example, ``12-ab-34`` without ``ab`` is ``12--34``, which may be a finding. In the first pass, only the rules
whose replacements can become part of a match judge the text. In the second pass, all rules judge the text with
these replacements.
"""

import bisect
import re
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace

from detection.detectors.params import REPLACEMENT
from detection.detectors.port import Judge
from detection.domain import Action, Failure, Finding, Piece, Progress
from detection.moderation.hold_back import GrowingText, Scan
from detection.moderation.rules import Rule, merged_spans, sort_key, with_merged_replacements

Rescan = Generator[tuple[Callable[[Piece], Scan], Piece], Scan, list[Progress]]
"""A generator that yields each scan of the second pass, receives its result, and returns the steps."""

# A replacement that begins and ends with a character that does not occur in words, numbers and addresses.
_MARK = r"[^\w\s.,:;@/+'\u2010-\u2015-]"
_CANNOT_JOIN = re.compile(rf"{_MARK}(.*{_MARK})?", re.DOTALL)


def first_pass_rules(rules: Sequence[Rule]) -> list[Rule]:
    """Return the rules whose replacement can form a match with the text beside it.

    A replacement between punctuation characters, like ``[REDACTED]`` or ``***``, cannot form a match. Rules that
    judge all choices of an answer together are left out: they judge the text only in the second pass.
    """
    return [rule for rule in rules if _joins(rule)]


def second_pass_rules(rules: Sequence[Rule]) -> list[Rule]:
    """Return all rules; those of the first pass get a replacement that cannot form a match."""
    return [replace(rule, replacement=REPLACEMENT) if _joins(rule) else rule for rule in rules]


def _joins(rule: Rule) -> bool:
    if rule.action is not Action.REDACT or (isinstance(rule.detector, Judge) and rule.detector.cross_choice):
        return False
    return _CANNOT_JOIN.fullmatch(rule.replacement) is None


class PositionMap:
    """Maps positions in the text with replacements to positions in the original text.

    >>> positions = PositionMap()
    >>> positions.add(2, 5, "")  # "12-ab34" without "-ab"
    >>> positions.start(2), positions.end(2), positions.cleared(2)
    (5, 2, 2)
    """

    def __init__(self) -> None:
        self._ends: list[int] = []  # the ends of the replacements in the text with replacements
        # For each span: start and end in the text with replacements, start and end in the original text.
        self._spans: list[tuple[int, int, int, int]] = []

    def add(self, start: int, end: int, replacement: str) -> None:
        """Add a replaced span of the original text. Call this method in the order of the spans."""
        position = start - (self._spans[-1][3] - self._spans[-1][1] if self._spans else 0)
        self._spans.append((position, position + len(replacement), start, end))
        self._ends.append(position + len(replacement))

    def start(self, position: int) -> int:
        """Return where a match begins in the original text.

        A match that begins within a replacement begins at the start of the replaced span. If a span was removed at
        the position, the match begins after this span.
        """
        before = bisect.bisect_right(self._ends, position)
        if before < len(self._spans) and self._spans[before][0] < position:
            return self._spans[before][2]
        return self._moved(position, before)

    def end(self, position: int) -> int:
        """Return where a match ends in the original text.

        A match that ends within a replacement ends at the end of the replaced span. If a span was removed at the
        position, the match ends before this span.
        """
        before = bisect.bisect_left(self._ends, position)
        if before < len(self._spans) and self._spans[before][0] < position:
            return self._spans[before][3]
        return self._moved(position, before)

    def cleared(self, position: int) -> int:
        """Return the position up to which the original text is cleared.

        If ``position`` is within a replacement, this is the start of the replaced span.

        Args:
            position: The end of the cleared part of the text with replacements.
        """
        before = bisect.bisect_left(self._ends, position)
        if before < len(self._spans) and self._spans[before][0] < position < self._spans[before][1]:
            return self._spans[before][2]
        return self.end(position)

    def is_replacement(self, start: int, end: int) -> bool:
        """Return whether a span lies within one replacement."""
        before = bisect.bisect_left(self._ends, end)
        return before < len(self._spans) and self._spans[before][0] <= start < end

    def _moved(self, position: int, before: int) -> int:
        """Return the original position of a position outside replacements.

        Args:
            position: The position in the text with replacements.
            before: The number of replacements before the position.
        """
        if not before:
            return position
        _, replacement_end, _, original_end = self._spans[before - 1]
        return position - replacement_end + original_end


def in_original_text(findings: Sequence[Finding], positions: PositionMap) -> list[Finding]:
    """Return the findings of the second pass with their positions in the original text.

    Findings within a replacement are omitted.
    """
    found = []
    for finding in findings:
        detection = finding.detection
        if detection.start is None or detection.end is None:
            found.append(finding)
        elif not positions.is_replacement(detection.start, detection.end):
            start, end = positions.start(detection.start), positions.end(detection.end)
            found.append(replace(finding, detection=replace(detection, start=start, end=end)))
    return found


class TwoPassText:
    """One growing text that is judged in two passes.

    `apply` and `collect` return a `Rescan`. The other methods are those of `GrowingText`.

    Args:
        number: The number of the choice.
        first: Applies the rules of the first pass to the original text.
        second: Applies all rules to the text with the replacements of the first pass.
    """

    def __init__(self, number: int, first: GrowingText, second: GrowingText) -> None:
        self._number = number
        self._first = first
        self._second = second
        self._positions = PositionMap()
        self._text = ""  # the text that `first` has not cleared
        self._cleared_by_first = 0  # the number of code points that `first` has cleared
        self._given_to_second = 0  # the length of the text that `second` has received
        self._reply = b""
        self._cleared = 0
        self._uncleared: list[Finding] = []  # findings of `first` that `second` has not cleared
        self._failed: set[Failure] = set()

    @property
    def complete(self) -> bool:
        """Whether the last piece has arrived."""
        return self._first.complete

    @property
    def undecided(self) -> int:
        """The number of code points that a quick rule will search again."""
        return self._first.undecided + self._second.undecided

    @property
    def waiting(self) -> int:
        """The number of code points that wait for a running detector."""
        return self._first.waiting + self._second.waiting

    @property
    def busy(self) -> bool:
        """Whether a detector is running."""
        return self._first.busy or self._second.busy

    def scan(self, piece: Piece) -> Scan:
        """Run the quick detectors of the first pass on a piece; may run in a thread."""
        self._text += piece.text
        self._reply = piece.reply or self._reply
        return self._first.scan(piece)

    def apply(self, scan: Scan) -> Rescan:
        """Return the steps after a scanned piece; runs on the event loop."""
        return self._second_steps(self._first.apply(scan))

    def collect(self) -> Rescan:
        """Return the steps after results of slow detectors; runs on the event loop."""
        steps = yield from self._second_steps(self._first.collect())
        if steps and steps[-1].action is Action.BLOCK:
            return steps
        return [*steps, *map(self._in_original_positions, self._second.collect())]

    def close(self) -> None:
        """Stop the detectors and record their work."""
        self._first.close()
        self._second.close()

    def _second_steps(self, steps: Sequence[Progress]) -> Rescan:
        out: list[Progress] = []
        for step in steps:
            failures = self._unreported(step.failures)
            if step.action is Action.BLOCK:
                return [*out, replace(step, cleared_until=self._cleared, failures=failures)]
            if failures:
                out.append(Progress(self._number, self._cleared, failures=failures))
            text = self._with_replacements(step)
            if text or step.fully_judged:
                piece = Piece(self._number, text, step.fully_judged, self._reply)
                scan = yield self._second.scan, piece
                out += map(self._in_original_positions, self._second.apply(scan))
                if out and out[-1].action is Action.BLOCK:
                    return out
        return out

    def _with_replacements(self, step: Progress) -> str:
        """Return the text that a step of the first pass clears, with its replacements."""
        self._uncleared += step.findings
        parts, done = [], self._cleared_by_first
        for start, end, replacement in merged_spans(sorted(step.findings, key=sort_key)):
            self._positions.add(start, end, replacement)
            parts += [self._text[done - self._cleared_by_first : start - self._cleared_by_first], replacement]
            done = end
        parts.append(self._text[done - self._cleared_by_first : step.cleared_until - self._cleared_by_first])
        self._text = self._text[step.cleared_until - self._cleared_by_first :]
        self._cleared_by_first = step.cleared_until
        text = "".join(parts)
        self._given_to_second += len(text)
        return text

    def _in_original_positions(self, step: Progress) -> Progress:
        """Return a step of `second` with positions in the original text and the cleared findings of `first`."""
        failures = self._unreported(step.failures)
        findings = in_original_text(step.findings, self._positions)
        if step.action is Action.BLOCK:
            return replace(step, cleared_until=self._cleared, findings=tuple(findings), failures=failures)
        is_complete = step.cleared_until == self._given_to_second
        self._cleared = self._cleared_by_first if is_complete else self._positions.cleared(step.cleared_until)
        cleared = [finding for finding in self._uncleared if (finding.detection.end or 0) <= self._cleared]
        self._uncleared = [finding for finding in self._uncleared if (finding.detection.end or 0) > self._cleared]
        both = with_merged_replacements(sorted([*findings, *cleared], key=sort_key))
        action = max((finding.action for finding in both), default=Action.NONE)
        return replace(step, cleared_until=self._cleared, findings=both, action=action, failures=failures)

    def _unreported(self, failures: Sequence[Failure]) -> tuple[Failure, ...]:
        """Return the failures that earlier steps have not reported."""
        unreported = tuple(failure for failure in failures if failure not in self._failed)
        self._failed.update(unreported)
        return unreported
