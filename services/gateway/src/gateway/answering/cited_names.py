"""Exempt citation marks from redaction, because a redaction in a mark would break the link to the source."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace

from gateway.answering.citation_marks import MarkScanner
from gateway.domain import Action, Finding


def exempt_marks(findings: Iterable[Finding], marks: Sequence[tuple[int, int]]) -> tuple[Finding, ...]:
    """Return the findings. A redaction within a citation mark becomes a report.

    Args:
        findings: The findings.
        marks: The positions of the citation marks in the text.
    """
    return tuple(
        replace(finding, action=Action.REPORT, replacement="") if _is_within(finding, marks) else finding
        for finding in findings
    )


def _is_within(finding: Finding, marks: Sequence[tuple[int, int]]) -> bool:
    start, end = finding.start, finding.end
    if finding.action is not Action.REDACT or start is None or end is None:
        return False
    return any(begin <= start and end <= stop for begin, stop in marks)


class CitedNames:
    """The citation marks of a growing text, and the findings that may be in a mark that is not complete yet.

    Args:
        names: The names of the passages that the caller has received.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._scanner = MarkScanner(names)
        self._marks: deque[tuple[int, int]] = deque()
        self._scanned = 0
        self._waiting: list[Finding] = []

    def feed(self, text: str) -> None:
        """Add the next piece of the text."""
        self._add_spans(self._scanner.feed(text))

    def end(self) -> None:
        """End the text."""
        self._add_spans(self._scanner.end())

    def add_findings(self, findings: Sequence[Finding]) -> None:
        """Add findings in the text so far."""
        self._waiting += findings

    def take_findings(self, *, now: bool = False) -> tuple[Finding, ...]:
        """Return the findings since the last call, or none while a redaction may be in an incomplete mark.

        Args:
            now: Treat an incomplete mark as ordinary text.
        """
        if not self._waiting or (self._is_waiting and not now):
            return ()
        findings, self._waiting = exempt_marks(self._waiting, self._marks), []
        return findings

    def limit(self, cleared: int) -> int:
        """Return the offset up to which the gateway may release cleared text."""
        return min((cleared, *(finding.start for finding in self._waiting if finding.start is not None)))

    def forget(self, offset: int) -> None:
        """Forget the marks before an offset, after the release of the text up to the offset."""
        while self._marks and self._marks[0][1] <= offset:
            self._marks.popleft()

    @property
    def _is_waiting(self) -> bool:
        return self._scanner.holds and any(
            finding.action is Action.REDACT and finding.start is not None and finding.start >= self._scanned
            for finding in self._waiting
        )

    def _add_spans(self, spans: Iterable[tuple[str, bool]]) -> None:
        for span, is_mark in spans:
            if is_mark:
                self._marks.append((self._scanned, self._scanned + len(span)))
            self._scanned += len(span)
