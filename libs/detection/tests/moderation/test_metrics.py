"""detection.moderation.metrics: the cost of detectors in the metrics."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing

import pytest
from causeway_testing.guardrails.fake import ScriptedDetector, ScriptedJudge
from causeway_testing.servers import measured
from detection.chunking.chunkers import Window
from detection.detectors.port import Detector, DetectorFailed, Judge, MissingPassages
from detection.domain import Action, DetectionContext, DetectorKind, OnError, Piece
from detection.moderation.judge_calls import call_judge
from detection.moderation.metrics import Hold
from detection.moderation.rules import Rule
from detection.moderation.session import Session
from detection.moderation.thread_pool import ThreadPool
from detection.moderation.whole_text import judge

SECONDS = "causeway_detector_duration_seconds"
HELD = "causeway_guardrails_hold_duration_seconds"


@pytest.fixture
def name() -> str:
    """Return a detector id that no other test uses, because all tests of the process share the measurements."""
    measured("")
    return uuid.uuid4().hex


def rule(name: str, detector: Detector | Judge, action: Action = Action.BLOCK) -> Rule:
    return Rule(name, detector, action, OnError.ALLOW, "#")


def counted(name: str) -> dict[str, float]:
    """Return the number of measurements by outcome."""
    return {
        labels["causeway_outcome"]: value
        for labels, value in measured(f"{SECONDS}_count")
        if labels["causeway_detector"] == name
    }


def total(name: str) -> float:
    return sum(value for _, value in measured(name))


async def run(session: Session, *pieces: Sequence[Piece]) -> None:
    async def batches() -> AsyncIterator[Sequence[Piece]]:
        for batch in pieces:
            yield batch

    workers = ThreadPool(1)
    async with aclosing(session.run(batches(), workers)) as steps:
        async for _ in steps:
            pass
    workers.close()


async def test_a_growing_text_is_counted_once(name: str) -> None:
    """A growing text counts once for any number of pieces, with its outcome, even if it is stopped early."""
    held = total(f"{HELD}_count")
    for text in ("clean", "ssn", "poison"):
        detector = ScriptedDetector("ssn", poison="poison")
        await run(
            Session([rule(name, detector)]),
            *([Piece(0, character)] for character in text),
            [Piece(0, "", last=True)],
        )
    assert counted(name) == {"clean": 1, "found": 1, "failed": 1}
    assert total(f"{HELD}_count") > held


async def test_calls_are_counted(name: str) -> None:
    """Each call counts once with its outcome. A cancelled call is not a failure."""
    judge_ = ScriptedJudge("secret", poison="poison", kind=DetectorKind.CONTEXT_DOC)
    context = DetectionContext(passages=("p",))
    for text in ("clean", "secret", "secret"):
        await call_judge(rule(name, judge_), [Window(0, text)], context)
    with pytest.raises(DetectorFailed):
        await call_judge(rule(name, judge_), [Window(0, "poison")], context)
    with pytest.raises(MissingPassages):
        await call_judge(rule(name, judge_), [Window(0, "x")], DetectionContext())
    judge_.gate.clear()
    stopped = asyncio.create_task(call_judge(rule(name, judge_), [Window(0, "x")], context))
    await asyncio.sleep(0)
    stopped.cancel()
    await asyncio.wait([stopped])
    assert counted(name) == {"clean": 1, "found": 2, "failed": 1, "not_asked": 1}


async def test_whole_texts_are_counted_together(name: str) -> None:
    """All whole texts of one request count once."""
    workers = ThreadPool(1)
    for texts in (["a", "b"], ["a", "ssn"], ["ssn", "poison"]):
        await judge(texts, [rule(name, ScriptedDetector("ssn", poison="poison"))], DetectionContext(), workers)
    workers.close()
    assert counted(name) == {"clean": 1, "found": 1, "failed": 1}


def test_the_longest_wait_counts() -> None:
    """The longest wait of the text's pieces counts. A text of which nothing was released does not count."""
    measured("")
    held = total(f"{HELD}_count")
    hold = Hold()
    hold.grew(3)
    hold.end()
    assert total(f"{HELD}_count") == held
    hold.grew(5)
    hold.released(2)
    hold.released(5)
    hold.released(5)
    hold.end()
    assert total(f"{HELD}_count") == held + 1
