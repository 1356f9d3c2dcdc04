"""detection.moderation.judge_calls: calls of slow detectors."""

import pytest
from causeway_testing.guardrails.fake import ScriptedJudge
from detection.chunking.chunkers import Window
from detection.detectors.port import DetectorFailed, MissingPassages
from detection.domain import Action, DetectionContext, DetectorKind, OnError
from detection.moderation.judge_calls import call_judge
from detection.moderation.rules import Rule

_WINDOWS = [Window(0, "secret"), Window(6, " \n "), Window(9, "🔑 secret")]


def _rule(judge: ScriptedJudge, action: Action = Action.REPORT) -> Rule:
    return Rule("judge", judge, action, OnError.BLOCK, "#")


async def test_findings_have_positions_in_the_whole_text() -> None:
    """Findings have their positions in the whole text. Blank windows are not sent to the detector."""
    judge = ScriptedJudge("secret")
    found = await call_judge(_rule(judge), _WINDOWS, DetectionContext())
    assert judge.calls == [["secret", "🔑 secret"]]
    assert [[(each.start, each.end) for each in of_window] for of_window in found] == [[(0, 6)], [], [(11, 17)]]
    assert await call_judge(_rule(judge), [Window(0, " ")], DetectionContext()) == [[]]
    assert len(judge.calls) == 1


async def test_a_message_without_words_is_judged() -> None:
    """A message of a conversation is judged even without words, because it may call tools."""
    judge = ScriptedJudge("secret", kind=DetectorKind.CHAT)
    assert await call_judge(_rule(judge), [Window(0, "")], DetectionContext()) == [[]]
    assert judge.calls == [[""]]


async def test_a_detector_that_exceeds_its_time_limit_fails() -> None:
    """A detector that exceeds its time limit fails and is stopped."""
    judge = ScriptedJudge("secret", seconds=0.05)
    judge.gate.clear()
    with pytest.raises(DetectorFailed, match=r"longer than 0.05 s") as raised:
        await call_judge(_rule(judge), _WINDOWS, DetectionContext())
    assert (raised.value.status, judge.cancelled) == (504, 1)


@pytest.mark.parametrize("passages", [(), ("", " \n")])
async def test_a_comparing_detector_is_not_called_without_passages(passages: tuple[str, ...]) -> None:
    """A detector that compares with passages is not called without passages, nor for blank windows."""
    judge = ScriptedJudge("secret", kind=DetectorKind.CONTEXT_DOC)
    with pytest.raises(MissingPassages, match="no passages") as raised:
        await call_judge(_rule(judge), _WINDOWS, DetectionContext(passages=passages))
    assert (raised.value.status, judge.calls) == (422, [])
    assert await call_judge(_rule(judge), [Window(0, " ")], DetectionContext(passages=passages)) == [[]]
    await call_judge(_rule(judge), _WINDOWS, DetectionContext(passages=("The pump.",)))
    assert len(judge.calls) == 1
