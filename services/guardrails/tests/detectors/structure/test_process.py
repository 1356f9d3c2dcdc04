"""guardrails.detectors.structure.process: no text harms the service, and the limits are enforced."""

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from detection.detectors.port import DetectorFailed
from guardrails.detectors.structure.process import CheckLimits, CheckProcesses

SCRIPT = """
import os, signal, sys, time
from guardrails.detectors.structure import child

def check(text, kind, required):
    if text == "hang":
        time.sleep(600)
    if text == "spin":
        while True: pass
    if text == "eat":
        kept = [bytes(50_000_000) for _ in range(1000)]
    if text == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if text == "defect":
        raise ZeroDivisionError
    if text == "noise":
        print("printed by a library", flush=True)
    if text == "environment":
        return " ".join(sorted(os.environ))
    return str(os.getppid())

sys.exit(child.serve(check))
"""


@pytest.fixture
async def processes(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[CheckProcesses]:
    """Yield processes whose check follows the instruction in the text. A parameter sets their time limit."""
    script = tmp_path / "child.py"
    script.write_text(SCRIPT)
    limits = CheckLimits(seconds=getattr(request, "param", 60), memory=200 * 1024**2)
    processes = CheckProcesses(limits, (sys.executable, str(script)))
    yield processes
    await processes.aclose()


@pytest.mark.parametrize(
    ("processes", "text", "message", "status"),
    [
        (1, "hang", "longer than 1 s", 504),
        (1, "spin", "longer than 1 s", 504),
        (60, "eat", "more memory", 0),
        (60, "crash", "SIGSEGV", 0),
        (60, "defect", "failed on the text", 0),
    ],
    indirect=["processes"],
)
async def test_a_text_that_ends_its_check_fails_the_detector(
    text: str, message: str, status: int, processes: CheckProcesses
) -> None:
    """The detector fails on the text that ends its check, and the next text is checked."""
    with pytest.raises(DetectorFailed, match=message) as raised:
        await processes.reasons(text, ["json"], 0)
    assert raised.value.status == status
    assert await processes.reasons("good", ["json"], 0)


async def test_one_process_checks_many_texts(processes: CheckProcesses) -> None:
    """One process forks for many texts, even after a crash. The output of libraries does not change the answers."""
    first = await processes.reasons("good", ["json"], 0)
    with pytest.raises(DetectorFailed):
        await processes.reasons("crash", ["json"], 0)
    assert await processes.reasons("noise", ["json"], 0) == first


async def test_the_process_gets_no_secrets(processes: CheckProcesses, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process gets no environment variable of the service."""
    monkeypatch.setenv("CAUSEWAY_NATS_URL", "nats://guardrails:secret@127.0.0.1")
    (names,) = await processes.reasons("environment", ["json"], 0)
    assert "CAUSEWAY_NATS_URL" not in names


async def test_a_process_that_does_not_start_fails_the_detector() -> None:
    """If the process does not start, the detector fails with a message."""
    broken = CheckProcesses(CheckLimits(), (sys.executable, "-c", "raise SystemExit(1)"))
    with pytest.raises(DetectorFailed, match="does not start"):
        await broken.reasons("{}", ["json"], 0)
