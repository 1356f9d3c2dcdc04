"""Whole texts under the rules of a request."""

from collections.abc import Sequence

from guardrails.domain import Action, Failure, Finding, Verdict
from guardrails.policy import Rule, arranged, place, redacted, strictest


def judge(texts: Sequence[str], rules: Sequence[Rule]) -> tuple[list[Verdict], list[Failure]]:
    """A verdict for each text, and the detectors that failed on any of them.

    A text on which a detector failed is blocked where the rule says so.
    """
    failures: dict[Failure, None] = {}  # each once, in order
    return [_verdict(text, rules, failures) for text in texts], list(failures)


def _verdict(text: str, rules: Sequence[Rule], failures: dict[Failure, None]) -> Verdict:
    findings: list[Finding] = []
    action = Action.NONE
    for rule in rules:
        try:
            findings += rule.findings(rule.detector.detect(text))
        except Exception as error:  # a detector's failure is not the request's
            failures[rule.failure(error)] = None
            if rule.blocks_on_error:
                action = Action.BLOCK
    findings.sort(key=place)
    action = max(action, strictest(findings))
    text = redacted(text, findings) if action is Action.REDACT else ""
    return Verdict(action, arranged(findings), text)
