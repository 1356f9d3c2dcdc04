"""Rules map detections to actions: report, redact or block. The strictest action applies."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import structlog

from detection.detectors.port import Detector, DetectorFailed, Judge, MissingPassages
from detection.domain import Action, Detection, DetectorKind, Failure, Finding, OnError

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Rule:
    """A detector with the action for its findings and the effect of its failure.

    The rule ignores detections below the threshold. `ConfiguredDetector` describes ``about_answer``.
    """

    detector_id: str
    detector: Detector | Judge
    action: Action
    on_error: OnError
    replacement: str
    threshold: float = 0.0
    about_answer: bool = False

    def findings(self, detections: Iterable[Detection]) -> Iterator[Finding]:
        """Return the findings for the detector's detections."""
        for detection in detections:
            if detection.score < self.threshold:
                continue
            action = self.action
            if action is Action.REDACT and detection.start is None:
                action = Action.BLOCK  # there is no span to replace
            replacement = self.replacement if action is Action.REDACT else ""
            yield Finding(detection, self.detector_id, action, replacement)

    def failure(self, error: Exception) -> Failure:
        """Return the failure for the client, and log the cause."""
        if isinstance(error, DetectorFailed):
            log = _log.info if isinstance(error, MissingPassages) else _log.warning
            log("detector failed", detector=self.detector_id, error=str(error))
            return Failure(self.detector_id, str(error), error.status, isinstance(error, MissingPassages))
        _log.error("detector failed", detector=self.detector_id, exc_info=error)
        return Failure(self.detector_id, "the detector failed unexpectedly")

    @property
    def protects(self) -> bool:
        """Whether text must wait for the rule, because the rule can redact or block."""
        return self.action in (Action.REDACT, Action.BLOCK)

    @property
    def judges_auxiliary(self) -> bool:
        """Whether the rule also judges tool arguments, reasoning and refusals; see `Piece.auxiliary`."""
        if self.about_answer:
            return False
        detector = self.detector
        return not isinstance(detector, Judge) or (
            detector.kind is DetectorKind.CONTENTS and not detector.cross_choice
        )

    def blocks_on(self, error: Exception) -> bool:
        """Return whether a failure of the detector blocks the text."""
        if isinstance(error, MissingPassages) and not self.protects:
            return False
        return self.on_error is OnError.BLOCK


def strictest(findings: Iterable[Finding]) -> Action:
    """Return the strictest action of the findings."""
    return max((finding.action for finding in findings), default=Action.NONE)


def sort_key(finding: Finding) -> tuple[float, float]:
    """Return the sort key of a finding: its start, then its end; findings without a span come last."""
    start, end = finding.detection.start, finding.detection.end
    if start is None or end is None:
        return (float("inf"), float("inf"))
    return (start, end)


def merged_spans(findings: Sequence[Finding]) -> list[tuple[int, int, str]]:
    """Return the spans to replace, in order: start, end and replacement.

    Overlapping spans become one span with the replacement of the first one.

    Args:
        findings: Findings in the order of `sort_key`.
    """
    merged: list[tuple[int, int, str]] = []
    for finding in findings:
        start, end = finding.detection.start, finding.detection.end
        if finding.action is not Action.REDACT or start is None or end is None:
            continue
        if merged and start < merged[-1][1]:
            first, furthest, replacement = merged[-1]
            merged[-1] = (first, max(furthest, end), replacement)
        else:
            merged.append((start, end, finding.replacement))
    return merged


def with_merged_replacements(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Return the findings; among overlapping spans, only the first one keeps its replacement.

    A client can then replace the spans in order and skip the parts that it has already replaced. It replaces each
    group of overlapping spans once.

    Args:
        findings: Findings in the order of `sort_key`, with all findings of each group of overlapping spans.
    """
    result = []
    replaced = -1
    for finding in findings:
        start, end = finding.detection.start, finding.detection.end
        if finding.action is Action.REDACT and start is not None and end is not None:
            if start < replaced:
                finding = replace(finding, replacement="")
            replaced = max(replaced, end)
        result.append(finding)
    return tuple(result)


def redact(text: str, findings: Sequence[Finding], joint: str = "_") -> str:
    """Return the text with replaced spans.

    Args:
        text: The text of the findings.
        findings: Findings in the order of `sort_key`.
        joint: The text to insert where a replacement cuts a word, so that the remaining part is not a separate
            word.
    """
    parts: list[str] = []
    done, edge = 0, ""
    for start, end, replacement in merged_spans(findings):
        remaining = text[done:start]
        parts += [joint if _splits_word(remaining[:1], text[done - 1 : done], edge) else "", remaining]
        parts += [
            joint if _splits_word(remaining[-1:], text[start : start + 1], replacement[:1]) else "",
            replacement,
        ]
        done, edge = end, replacement[-1:]
    rest = text[done:]
    return "".join([*parts, joint if _splits_word(rest[:1], text[done - 1 : done], edge) else "", rest])


def _splits_word(remaining: str, removed: str, edge: str) -> bool:
    """Return whether a replacement removes a part of a word and would make the other part a separate word.

    Args:
        remaining: The remaining character next to the replacement.
        removed: The removed character next to it.
        edge: The character of the replacement next to the remaining character.
    """
    return bool(edge) and _is_word(remaining) and _is_word(removed) and not _is_word(edge)


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"
