"""Judges the text that clients see, because a replacement and its neighbouring text can form a new match.

For example, ``12-ab-34`` without ``ab`` is ``12--34``, which may be a finding. Therefore the rules whose
replacements can become part of a match run first. Then all rules judge the resulting text.
"""

import bisect
import re
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace

from detection.detectors.params import REPLACEMENT
from detection.detectors.port import Judge
from detection.domain import Action, Failure, Finding, Piece, Progress
from detection.moderation.hold_back import GrowingText, Scan
from detection.moderation.rules import Rule, arranged, sort_key, unions

Rescan = Generator[tuple[Callable[[Piece], Scan], Piece], Scan, list[Progress]]
"""Yields each scan of the text after replacements, receives the result, and returns the steps."""

# A replacement that begins and ends with a character that does not occur in words, numbers and addresses.
_MARK = r"[^\w\s.,:;@/+'\u2010-\u2015-]"
_APART = re.compile(rf"{_MARK}(.*{_MARK})?", re.DOTALL)


def joining(rules: Sequence[Rule]) -> list[Rule]:
    """Return the rules whose replacement can form a match together with the neighbouring text.

    A replacement between punctuation characters, like ``[REDACTED]`` or ``***``, cannot form a match.
    """
    return [rule for rule in rules if _joins(rule)]


def apart(rules: Sequence[Rule]) -> list[Rule]:
    """Return the rules with replacements that cannot form a match with the neighbouring text."""
    return [replace(rule, replacement=REPLACEMENT) if _joins(rule) else rule for rule in rules]


def _joins(rule: Rule) -> bool:
    if rule.action is not Action.REDACT or (isinstance(rule.detector, Judge) and rule.detector.cross_choice):
        return False
    return _APART.fullmatch(rule.replacement) is None


class Cuts:
    """Maps positions in the text after replacements to positions in the original text.

    >>> cuts = Cuts()
    >>> cuts.add(2, 5, "")  # "12-ab34" without "-ab"
    >>> cuts.start(2), cuts.end(2), cuts.cleared(2)
    (5, 2, 2)
    """

    def __init__(self) -> None:
        self._left: list[int] = []  # the ends of the replacements in the resulting text
        self._spans: list[tuple[int, int, int, int]] = []  # start and end in the result, start and end in the text

    def add(self, start: int, end: int, replacement: str) -> None:
        """Add a replaced span of the text; calls are in the order of the spans."""
        at = start - (self._spans[-1][3] - self._spans[-1][1] if self._spans else 0)
        self._spans.append((at, at + len(replacement), start, end))
        self._left.append(at + len(replacement))

    def start(self, at: int) -> int:
        """Return the position in the text of the start of a match: after a span that was replaced at this place."""
        before = bisect.bisect_right(self._left, at)
        if before < len(self._spans) and self._spans[before][0] < at:
            return self._spans[before][2]
        return self._moved(at, before)

    def end(self, at: int) -> int:
        """Return the position in the text of the end of a match: before a span that was replaced at this place."""
        before = bisect.bisect_left(self._left, at)
        if before < len(self._spans) and self._spans[before][0] < at:
            return self._spans[before][3]
        return self._moved(at, before)

    def cleared(self, at: int) -> int:
        """Return the position up to which the text is cleared; a replacement is never cleared in part."""
        before = bisect.bisect_left(self._left, at)
        if before < len(self._spans) and self._spans[before][0] < at < self._spans[before][1]:
            return self._spans[before][2]
        return self.end(at)

    def own(self, start: int, end: int) -> bool:
        """Return whether a span is within one replacement, which a rule has written."""
        before = bisect.bisect_left(self._left, end)
        return before < len(self._spans) and self._spans[before][0] <= start < end

    def _moved(self, at: int, before: int) -> int:
        if not before:
            return at
        _, left, _, end = self._spans[before - 1]
        return at - left + end


def mapped(findings: Sequence[Finding], cuts: Cuts) -> list[Finding]:
    """Return findings in the resulting text with their positions in the original text."""
    found = []
    for finding in findings:
        detection = finding.detection
        if detection.start is None or detection.end is None:
            found.append(finding)
        elif not cuts.own(detection.start, detection.end):
            start, end = cuts.start(detection.start), cuts.end(detection.end)
            found.append(replace(finding, detection=replace(detection, start=start, end=end)))
    return found


class SeenText:
    """One growing text. `apply` and `settle` return a `Rescan`; otherwise the interface is that of `GrowingText`.

    Args:
        number: The number of the choice.
        first: The text under the rules whose replacements can form matches.
        second: The text with replacements under all rules.
    """

    def __init__(self, number: int, first: GrowingText, second: GrowingText) -> None:
        self._number = number
        self._first = first
        self._second = second
        self._cuts = Cuts()
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
        """Run the quick detectors of the first rules on a piece; may run in a thread."""
        self._text += piece.text
        self._reply = piece.reply or self._reply
        return self._first.scan(piece)

    def apply(self, scan: Scan) -> Rescan:
        """Return the steps after a scanned piece; runs on the event loop."""
        return self._second_steps(self._first.apply(scan))

    def settle(self) -> Rescan:
        """Return the steps after results of slow detectors; runs on the event loop."""
        steps = yield from self._second_steps(self._first.settle())
        if steps and steps[-1].action is Action.BLOCK:
            return steps
        return [*steps, *map(self._in_original_positions, self._second.settle())]

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
            left = self._resulting_text(step)
            if left or step.judged:
                piece = Piece(self._number, left, step.judged, self._reply)
                scan = yield self._second.scan, piece
                out += map(self._in_original_positions, self._second.apply(scan))
                if out and out[-1].action is Action.BLOCK:
                    return out
        return out

    def _resulting_text(self, step: Progress) -> str:
        """Return the text that the first rules clear, with replacements."""
        self._uncleared += step.findings
        parts, done = [], self._cleared_by_first
        for start, end, replacement in unions(sorted(step.findings, key=sort_key)):
            self._cuts.add(start, end, replacement)
            parts += [self._text[done - self._cleared_by_first : start - self._cleared_by_first], replacement]
            done = end
        parts.append(self._text[done - self._cleared_by_first : step.cleared_until - self._cleared_by_first])
        self._text = self._text[step.cleared_until - self._cleared_by_first :]
        self._cleared_by_first = step.cleared_until
        left = "".join(parts)
        self._given_to_second += len(left)
        return left

    def _in_original_positions(self, step: Progress) -> Progress:
        """Return a step of `second` with positions in the original text and the cleared findings of `first`."""
        failures = self._unreported(step.failures)
        findings = mapped(step.findings, self._cuts)
        if step.action is Action.BLOCK:
            return replace(step, cleared_until=self._cleared, findings=tuple(findings), failures=failures)
        is_complete = step.cleared_until == self._given_to_second
        self._cleared = self._cleared_by_first if is_complete else self._cuts.cleared(step.cleared_until)
        cleared = [each for each in self._uncleared if (each.detection.end or 0) <= self._cleared]
        self._uncleared = [each for each in self._uncleared if (each.detection.end or 0) > self._cleared]
        both = arranged(sorted([*findings, *cleared], key=sort_key))
        action = max((each.action for each in both), default=Action.NONE)
        return replace(step, cleared_until=self._cleared, findings=both, action=action, failures=failures)

    def _unreported(self, failures: Sequence[Failure]) -> tuple[Failure, ...]:
        """Return the failures that earlier steps have not reported."""
        fresh = tuple(each for each in failures if each not in self._failed)
        self._failed.update(fresh)
        return fresh
