"""servicekit.child_processes: processes that misbehave. The services' tests use real programs."""

from collections.abc import Callable

import pytest
from servicekit.child_processes import ChildEnded, ChildNotStarted, ChildProcesses

READY = "printf '\\000\\000\\000\\000'; "
HI = "printf '\\000\\000\\000\\002hi'; "
NONCE = "head -c 16; "
RESPONSE = f"head -c 5 >/dev/null; {HI}{NONCE}"

Processes = Callable[..., ChildProcesses]


@pytest.fixture
def processes() -> Processes:
    """Return processes that run a line of shell."""
    return lambda script: ChildProcesses(("/bin/sh", "-c", script), {"PATH": "/usr/bin:/bin"}, max_frame_bytes=2)


async def test_a_response_frees_the_process_for_the_next_request(processes: Processes) -> None:
    """One process handles both requests. A process that was cancelled or late is not reused."""
    pool = processes(READY + RESPONSE + RESPONSE + "sleep 3600")
    assert [await pool.call(b"?", 30), await pool.call(b"?", 30)] == [b"hi", b"hi"]
    with pytest.raises(TimeoutError):
        await pool.call(b"?", 0.05)
    assert await pool.call(b"?", 30) == b"hi"
    await pool.aclose()


@pytest.mark.parametrize("script", ["exit 1", "printf '\\000\\000\\000\\003abc'"], ids=["ends", "too long"])
async def test_a_program_that_does_not_report_that_it_is_ready_is_refused(
    script: str, processes: Processes
) -> None:
    """The start fails if the program ends immediately, or if its first frame is not empty."""
    with pytest.raises(ChildNotStarted):
        await processes(script).call(b"?", 30)


async def test_a_missing_program_is_reported() -> None:
    """The error names the program."""
    with pytest.raises(ChildNotStarted, match="/nowhere"):
        await ChildProcesses(("/nowhere",), max_frame_bytes=2).call(b"?", 30)


async def test_a_process_that_ends_during_a_request_is_reported(processes: Processes) -> None:
    """The error has the exit code, and the next request starts another process."""
    pool = processes(READY + "head -c 5 >/dev/null; exit 3")
    for _ in range(2):
        with pytest.raises(ChildEnded) as ended:
            await pool.call(b"?", 30)
        assert ended.value.code == 3


async def test_a_process_that_ends_while_it_is_idle_is_replaced(processes: Processes) -> None:
    """Another process handles the next request. The end of an idle process does not cause an error."""
    pool = processes(READY + RESPONSE)
    for _ in range(3):
        assert await pool.call(b"?", 30) == b"hi"
        await pool._idle[0]._process.wait()
        assert len(pool._idle) == 1
    await pool.aclose()


@pytest.mark.parametrize("more", [HI, "head -c 16 >/dev/null; head -c 16 /dev/zero; "], ids=["response", "nonce"])
async def test_a_process_that_writes_more_than_its_response_is_replaced(more: str, processes: Processes) -> None:
    """Output after a response is not the response to the next request, which another process handles."""
    pool = processes(READY + "head -c 5 >/dev/null; " + HI + more + NONCE + "sleep 3600")
    assert await pool.call(b"?", 30) == b"hi"
    assert not pool._idle
    await pool.aclose()


async def test_a_response_that_is_too_long_is_refused(processes: Processes) -> None:
    """The frame is refused by its length, before it is read."""
    with pytest.raises(ValueError, match="3 bytes"):
        await processes(READY + "printf '\\000\\000\\000\\003'; sleep 3600").call(b"?", 30)
