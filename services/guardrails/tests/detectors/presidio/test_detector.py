"""guardrails.detectors.presidio: the real model finds names in a separate process."""

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from causeway_testing.guardrails.detectors import slow
from detection.detectors.port import DetectorFailed
from detection.domain import DetectionContext
from guardrails.detectors.child_processes import ChildProcesses
from guardrails.detectors.presidio.detector import pii, pii_processes

PYTHON = Path(sys.prefix) / "pii" / "bin" / "python"
_CONTEXT = DetectionContext()
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def processes() -> AsyncIterator[ChildProcesses]:
    """Yield the detector's processes, at most one. All tests share them, because a start takes seconds."""
    assert PYTHON.exists(), "Presidio is not installed: make .venv/.pii"
    processes = pii_processes(PYTHON, 60, 1)
    yield processes
    await processes.aclose()


async def test_each_window_has_its_own_findings(processes: ChildProcesses) -> None:
    """Each window has its own findings, in code points. Entities that were not requested are not reported."""
    judge = slow(pii(processes, 60))
    texts = ["\U0001f511 Anna Meyer lives in Berlin.", "The pump is green.", "She asked John Smith."]
    found = await judge.judge(texts, _CONTEXT)
    assert [[(detection.name, detection.text) for detection in detections] for detections in found] == [
        [("person", "Anna Meyer"), ("location", "Berlin")],
        [],
        [("person", "John Smith")],
    ]
    for text, detections in zip(texts, found, strict=True):
        for detection in detections:
            assert detection.text == text[detection.start : detection.end]
            assert (detection.type, detection.score) == ("pii", 0.85)
    [places] = await slow(pii(processes, 60), entities=["LOCATION"]).judge(texts[:1], _CONTEXT)
    assert [place.text for place in places] == ["Berlin"]


async def test_many_windows_are_several_requests(
    processes: ChildProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The requests are sent one after the other, and the results are in order."""
    monkeypatch.setattr("guardrails.detectors.presidio.detector._MAX_BATCH_LENGTH", 40)
    green = "The pump is green. "
    texts = [green, "Anna Meyer came.", green, green, "John Smith left."]
    found = await slow(pii(processes, 60)).judge(texts, _CONTEXT)
    assert [[detection.text for detection in detections] for detections in found] == [
        [],
        ["Anna Meyer"],
        [],
        [],
        ["John Smith"],
    ]


async def test_a_process_that_ends_while_it_is_idle_fails_no_request(processes: ChildProcesses) -> None:
    """The next request starts another process."""
    judge = slow(pii(processes, 60))
    await judge.judge(["Anna"], _CONTEXT)
    [idle] = processes._processes._idle
    await idle.kill()
    assert (await judge.judge(["Anna Meyer came."], _CONTEXT))[0]


async def test_a_late_response_is_a_failure() -> None:
    """A late answer is a failure with status 504. The process is killed together with its forks."""
    late = pii_processes(PYTHON, 0.001, 1)
    with pytest.raises(DetectorFailed, match="longer than") as failed:
        await slow(pii(late, 0.001)).judge(["Anna " * 3000], _CONTEXT)
    assert failed.value.status == 504
    assert late._processes._idle == []


async def test_the_health_names_the_reason(processes: ChildProcesses, tmp_path: Path) -> None:
    """The detector is healthy if the model answers. Otherwise its health names the reason."""
    assert (await pii(processes, 60).health()).healthy
    missing = await pii(pii_processes(tmp_path / "python", 60, 1), 60).health()
    assert (missing.healthy, missing.reason) == (False, "the process that checks texts does not start")
    other = await pii(pii_processes(Path(sys.executable), 60, 1), 60).health()  # a Python without Presidio
    assert (other.healthy, other.reason) == (False, "the process that checks texts does not start")
