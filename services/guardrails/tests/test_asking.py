"""guardrails.asking: questions to detectors that take their time."""

import pytest
from guardrails.asking import ask
from guardrails.chunking import Window
from guardrails.detectors.fake import ScriptedJudge
from guardrails.detectors.port import DetectorFailed
from guardrails.domain import DetectorKind, Surroundings

_WINDOWS = [Window(0, "secret"), Window(6, " \n "), Window(9, "🔑 secret")]


async def test_places() -> None:
    """What is found stands where it is in the text; blank windows are not asked about."""
    judge = ScriptedJudge("secret")
    found = await ask(judge, _WINDOWS, Surroundings())
    assert judge.asked == [["secret", "🔑 secret"]]
    assert [[(each.start, each.end) for each in of_window] for of_window in found] == [[(0, 6)], [], [(11, 17)]]
    assert await ask(judge, [Window(0, " ")], Surroundings()) == [[]]
    assert len(judge.asked) == 1


async def test_conversations() -> None:
    """A message of a conversation is judged without words, too: it may call tools."""
    judge = ScriptedJudge("secret", kind=DetectorKind.CHAT)
    assert await ask(judge, [Window(0, "")], Surroundings()) == [[]]
    assert judge.asked == [[""]]


async def test_time() -> None:
    """A detector that takes longer than its time has failed, and is stopped."""
    judge = ScriptedJudge("secret", seconds=0.05)
    judge.gate.clear()
    with pytest.raises(DetectorFailed, match=r"longer than 0.05 s") as raised:
        await ask(judge, _WINDOWS, Surroundings())
    assert (raised.value.status, judge.cancelled) == (504, 1)
