"""detection.moderation.whole_text: rules for whole texts."""

from collections.abc import Iterator

import pytest
from causeway_testing.guardrails.fake import ScriptedDetector
from detection.domain import Action, DetectionContext, Failure, OnError
from detection.moderation.rules import Rule
from detection.moderation.thread_pool import ThreadPool
from detection.moderation.whole_text import judge


@pytest.fixture
def workers() -> Iterator[ThreadPool]:
    """Yield the threads that judge long texts."""
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


async def test_each_text_has_one_verdict(workers: ThreadPool) -> None:
    """Each text has one verdict, in order. Without findings, a text has no action."""
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
    """The findings of all detectors are ordered by position. Findings without a span come last."""
    rules = [_rule("b", Action.REPORT), _rule("x", Action.REPORT, spans=False), _rule("a", Action.REPORT)]
    (verdict,), _ = await judge(["x b a"], rules, DetectionContext(), workers)
    assert [finding.detector_id for finding in verdict.findings] == ["b", "a", "x"]


async def test_overlapping_spans_are_replaced_as_one(workers: ThreadPool) -> None:
    """Overlapping spans are replaced as one, and the findings show this."""
    rules = [_rule("cd", Action.REDACT, replacement="2"), _rule("abc", Action.REDACT, replacement="1")]
    (verdict,), _ = await judge(["xabcdx"], rules, DetectionContext(), workers)
    assert verdict.redacted_text == "x1x"
    assert [(f.detector_id, f.replacement) for f in verdict.findings] == [("abc", "1"), ("cd", "")]


@pytest.mark.parametrize("error", [None, ZeroDivisionError("inside")])
async def test_a_failure_blocks(error: Exception | None, workers: ThreadPool) -> None:
    """A text on which a detector fails is blocked, and the other texts are judged. The failure is reported once."""
    verdicts, failures = await judge(
        ["poison", "x", "poison"], [_rule("x", Action.REPORT, error=error)], DetectionContext(), workers
    )
    assert [verdict.action for verdict in verdicts] == [Action.BLOCK, Action.REPORT, Action.BLOCK]
    assert [failure.detector_id for failure in failures] == ["x"]


async def test_a_failure_may_be_allowed(workers: ThreadPool) -> None:
    """If the rule allows failures, the other detectors judge the text, with a warning."""
    rules = [
        _rule("x", Action.BLOCK, on_error=OnError.ALLOW),
        Rule("y", ScriptedDetector("y"), Action.REDACT, OnError.BLOCK, "#"),
    ]
    (verdict,), failures = await judge(["poison x y"], rules, DetectionContext(), workers)
    assert (verdict.action, verdict.redacted_text) == (Action.REDACT, "poison x #")
    assert failures == [Failure("x", "a scripted failure")]
