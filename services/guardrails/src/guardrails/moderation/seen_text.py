"""Texts as clients read them: where a replacement joins what is beside it, the result is judged, too.

What is taken out of ``12-ab-34`` leaves ``12--34``, which may be a finding itself. Rules whose replacement can
become a part of something work first; all rules look at the text that is left.
"""

import bisect
import re
from collections.abc import Sequence
from dataclasses import replace

from guardrails.detectors.params import REPLACEMENT
from guardrails.detectors.port import Judge
from guardrails.domain import Action, Failure, Finding, Piece, Progress
from guardrails.moderation.hold_back import GrowingText, Scan
from guardrails.moderation.rules import Rule, arranged, place, unions

# Its ends are marks that no word, number or address has.
_MARK = r"[^\w\s.,:;@/+'\u2010-\u2015-]"
_APART = re.compile(rf"{_MARK}(.*{_MARK})?", re.DOTALL)


def joining(rules: Sequence[Rule]) -> list[Rule]:
    """Return the rules whose replacement can form something together with the text beside it.

    One between marks, like ``[REDACTED]`` or ``***``, stands apart.
    """
    return [rule for rule in rules if _joins(rule)]


def apart(rules: Sequence[Rule]) -> list[Rule]:
    """Return the rules with replacements that stand apart."""
    return [replace(rule, replacement=REPLACEMENT) if _joins(rule) else rule for rule in rules]


def _joins(rule: Rule) -> bool:
    if rule.action is not Action.REDACT or (isinstance(rule.detector, Judge) and rule.detector.cross_choice):
        return False
    return _APART.fullmatch(rule.replacement) is None


class Cuts:
    """Where a text differs from what is left of it, and so the places of one in the other.

    >>> cuts = Cuts()
    >>> cuts.add(2, 5, "")  # "12-ab34" without "-ab"
    >>> cuts.start(2), cuts.end(2), cuts.cleared(2)
    (5, 2, 2)
    """

    def __init__(self) -> None:
        self._left: list[int] = []  # ends of the replacements in what is left
        self._spans: list[tuple[int, int, int, int]] = []  # of each: in what is left, in the text

    def add(self, start: int, end: int, replacement: str) -> None:
        """Note that a span of the text is replaced; spans come in order."""
        at = start - (self._spans[-1][3] - self._spans[-1][1] if self._spans else 0)
        self._spans.append((at, at + len(replacement), start, end))
        self._left.append(at + len(replacement))

    def start(self, at: int) -> int:
        """Return where in the text something begins: behind what was taken out there."""
        before = bisect.bisect_right(self._left, at)
        if before < len(self._spans) and self._spans[before][0] < at:
            return self._spans[before][2]
        return self._moved(at, before)

    def end(self, at: int) -> int:
        """Return where in the text something ends: before what was taken out there."""
        before = bisect.bisect_left(self._left, at)
        if before < len(self._spans) and self._spans[before][0] < at:
            return self._spans[before][3]
        return self._moved(at, before)

    def cleared(self, at: int) -> int:
        """Return how much of the text is cleared: of a replacement all or nothing."""
        before = bisect.bisect_left(self._left, at)
        if before < len(self._spans) and self._spans[before][0] < at < self._spans[before][1]:
            return self._spans[before][2]
        return self.end(at)

    def own(self, start: int, end: int) -> bool:
        """Return whether a span lies within one replacement: the words are the rule's."""
        before = bisect.bisect_left(self._left, end)
        return before < len(self._spans) and self._spans[before][0] <= start < end

    def _moved(self, at: int, before: int) -> int:
        if not before:
            return at
        _, left, _, end = self._spans[before - 1]
        return at - left + end


def mapped(findings: Sequence[Finding], cuts: Cuts) -> list[Finding]:
    """Return findings in what is left of a text with their places in the text."""
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
    """One growing text; see `GrowingText`, whose ways it has.

    Args:
        number: Which choice.
        first: The text under the rules that join.
        second: What they leave, under all rules, with replacements that stand apart.
    """

    def __init__(self, number: int, first: GrowingText, second: GrowingText) -> None:
        self._number = number
        self._first = first
        self._second = second
        self._cuts = Cuts()
        self._text = ""  # what the first has not cleared
        self._taken = 0  # what it has
        self._given = 0  # length of what the second got
        self._reply = b""
        self._cleared = 0
        self._told: list[Finding] = []  # the first's, which the second has not cleared
        self._failed: set[Failure] = set()

    @property
    def complete(self) -> bool:
        """Its last piece was taken."""
        return self._first.complete

    @property
    def undecided(self) -> int:
        """Code points that some quick rule will look at again."""
        return self._first.undecided + self._second.undecided

    @property
    def waiting(self) -> int:
        """Code points that wait for a detector that is at work."""
        return self._first.waiting + self._second.waiting

    @property
    def busy(self) -> bool:
        """Whether a detector is at work."""
        return self._first.busy or self._second.busy

    def scan(self, piece: Piece) -> Scan:
        """What the quick detectors of the first rules say; may run in a thread."""
        self._text += piece.text
        self._reply = piece.reply or self._reply
        return self._first.scan(piece)

    def apply(self, scan: Scan) -> list[Progress]:
        """What a scanned piece changes. Runs in the event loop."""
        return self._on(self._first.apply(scan))

    def settle(self) -> list[Progress]:
        """What the detectors that took their time have changed. Runs in the event loop."""
        steps = self._on(self._first.settle())
        if steps and steps[-1].action is Action.BLOCK:
            return steps
        return [*steps, *map(self._as_it_came, self._second.settle())]

    def close(self) -> None:
        """Stops the detectors, and counts what they have done."""
        self._first.close()
        self._second.close()

    def _on(self, steps: Sequence[Progress]) -> list[Progress]:
        out: list[Progress] = []
        for step in steps:
            failures = self._new(step.failures)
            if step.action is Action.BLOCK:
                return [*out, replace(step, cleared_until=self._cleared, failures=failures)]
            if failures:
                out.append(Progress(self._number, self._cleared, failures=failures))
            left = self._left(step)
            if left or step.judged:
                piece = Piece(self._number, left, step.judged, self._reply)
                out += map(self._as_it_came, self._second.apply(self._second.scan(piece)))
                if out and out[-1].action is Action.BLOCK:
                    return out
        return out

    def _left(self, step: Progress) -> str:
        """What is left of the text that the first rules clear."""
        self._told += step.findings
        parts, done = [], self._taken
        for start, end, replacement in unions(sorted(step.findings, key=place)):
            self._cuts.add(start, end, replacement)
            parts += [self._text[done - self._taken : start - self._taken], replacement]
            done = end
        parts.append(self._text[done - self._taken : step.cleared_until - self._taken])
        self._text = self._text[step.cleared_until - self._taken :]
        self._taken = step.cleared_until
        left = "".join(parts)
        self._given += len(left)
        return left

    def _as_it_came(self, step: Progress) -> Progress:
        """A step of the second with its places in the text, and with what the first found there."""
        failures = self._new(step.failures)
        findings = mapped(step.findings, self._cuts)
        if step.action is Action.BLOCK:
            return replace(step, cleared_until=self._cleared, findings=tuple(findings), failures=failures)
        all_of_it = step.cleared_until == self._given
        self._cleared = self._taken if all_of_it else self._cuts.cleared(step.cleared_until)
        told = [each for each in self._told if (each.detection.end or 0) <= self._cleared]
        self._told = [each for each in self._told if (each.detection.end or 0) > self._cleared]
        both = arranged(sorted([*findings, *told], key=place))
        action = max((each.action for each in both), default=Action.NONE)
        return replace(step, cleared_until=self._cleared, findings=both, action=action, failures=failures)

    def _new(self, failures: Sequence[Failure]) -> tuple[Failure, ...]:
        """The failures that were not told yet."""
        fresh = tuple(each for each in failures if each not in self._failed)
        self._failed.update(fresh)
        return fresh
