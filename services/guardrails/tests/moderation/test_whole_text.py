"""guardrails.moderation.whole_text: whole texts under rules."""

from collections.abc import Iterator

import pytest
from causeway_testing.guardrails.fake import ScriptedDetector
from guardrails.domain import Action, DetectionContext, Failure, OnError
from guardrails.moderation.rules import Rule
from guardrails.moderation.thread_pool import ThreadPool
from guardrails.moderation.whole_text import judge


@pytest.fixture
def workers() -> Iterator[ThreadPool]:
    """Where long texts are judged."""
    started = ThreadPool(1)
    yield started
    started.close()


def _rule(
    phrase: str,
    action: Action,
    *,
    on_error: OnError = OnError.BLOCK,
    spans: bool = True,
    error: Exception | None = None,
    replacement: str = "#",
) -> Rule:
    detector = ScriptedDetector(phrase, poison="poison", spans=spans, error=error)
    return Rule(phrase, detector, action, on_error, replacement)


async def test_each_text_is_judged_by_itself(workers: ThreadPool) -> None:
    """One verdict a text, in order; nothing found is nothing done."""
    verdicts, failures = await judge(
        ["clean", "a ssn", "ssn name"],
        [_rule("ssn", Action.REDACT), _rule("name", Action.BLOCK)],
        DetectionContext(),
        workers,
    )
    assert [verdict.action for verdict in verdicts] == [Action.NONE, Action.REDACT, Action.BLOCK]
    assert [verdict.redacted_text for verdict in verdicts] == ["", "a #", ""]
    assert [[f.detector_id for f in verdict.findings] for verdict in verdicts] == [[], ["ssn"], ["ssn", "name"]]
    assert failures == []


async def test_findings_are_ordered(workers: ThreadPool) -> None:
    """Findings of all detectors stand by their place; those without a span last."""
    rules = [_rule("b", Action.REPORT), _rule("x", Action.REPORT, spans=False), _rule("a", Action.REPORT)]
    (verdict,), _ = await judge(["x b a"], rules, DetectionContext(), workers)
    assert [finding.detector_id for finding in verdict.findings] == ["b", "a", "x"]


async def test_overlapping_redaction(workers: ThreadPool) -> None:
    """Spans that overlap are replaced as one, and the findings say so."""
    rules = [_rule("cd", Action.REDACT, replacement="2"), _rule("abc", Action.REDACT, replacement="1")]
    (verdict,), _ = await judge(["xabcdx"], rules, DetectionContext(), workers)
    assert verdict.redacted_text == "x1x"
    assert [(f.detector_id, f.replacement) for f in verdict.findings] == [("abc", "1"), ("cd", "")]


@pytest.mark.parametrize("error", [None, ZeroDivisionError("inside")])
async def test_a_failure_blocks(error: Exception | None, workers: ThreadPool) -> None:
    """A text on which a detector fails is blocked, the others are judged; the failure is told once."""
    verdicts, failures = await judge(
        ["poison", "x", "poison"], [_rule("x", Action.REPORT, error=error)], DetectionContext(), workers
    )
    assert [verdict.action for verdict in verdicts] == [Action.BLOCK, Action.REPORT, Action.BLOCK]
    assert [failure.detector_id for failure in failures] == ["x"]


async def test_a_failure_may_be_allowed(workers: ThreadPool) -> None:
    """Where the rule allows it the text goes on without the detector, under the others, with a warning."""
    rules = [
        _rule("x", Action.BLOCK, on_error=OnError.ALLOW),
        Rule("y", ScriptedDetector("y"), Action.REDACT, OnError.BLOCK, "#"),
    ]
    (verdict,), failures = await judge(["poison x y"], rules, DetectionContext(), workers)
    assert (verdict.action, verdict.redacted_text) == (Action.REDACT, "poison x #")
    assert failures == [Failure("x", "the detector was told to fail")]
