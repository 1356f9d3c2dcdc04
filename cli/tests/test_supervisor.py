import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from causeway.cli.supervisor import Program, ProgramFailed, Restarts, Supervisor
from causeway_testing.servers import eventually

QUICK = Restarts(first=0.05, maximum=0.2, healthy_after=30)
# A program that prints a line and, on SIGTERM, appends its name to a file.
SERVE = """
import os, signal, sys
def end(*_):
    with open(sys.argv[1], "a") as file:
        file.write(sys.argv[2] + "\\n")
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
print("serving", flush=True)
while True:
    signal.pause()
"""
STUBBORN = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("serving", flush=True)
while True:
    signal.pause()
"""


def program(name: str, code: str, *arguments: object) -> Program:
    """Return a program that runs Python code."""
    command = [sys.executable, "-c", code, *(str(argument) for argument in arguments)]
    return Program(name, command, dict(os.environ))


class RecordingSupervisor(Supervisor):
    """A supervisor that records its reports and counts the changes of process ids."""

    def __init__(self, directory: Path, *, restarts: Restarts = QUICK, grace: float = 5) -> None:
        self.reports: list[str] = []
        self.changes = 0
        super().__init__(
            directory, report=self.reports.append, on_pid_change=self._count, restarts=restarts, grace=grace
        )

    def _count(self) -> None:
        self.changes += 1

    async def serving(self, name: str) -> int:
        """Wait until a program has printed a line, and return its process id."""
        await eventually(lambda: bool(self.last_lines(name)), what=f"{name} serves")
        pid = self.pids[name]
        assert pid is not None
        return pid


@pytest.fixture
async def supervisor(tmp_path: Path) -> AsyncIterator[RecordingSupervisor]:
    """Yield a supervisor, and stop it after the test."""
    supervisor = RecordingSupervisor(tmp_path / "logs")
    yield supervisor
    supervisor.kill()
    await supervisor.stop()


async def test_a_killed_program_is_restarted(supervisor: RecordingSupervisor, tmp_path: Path) -> None:
    """A killed program is restarted. The report names the signal. Each change of the process ID is announced."""
    supervisor.start(program("a", SERVE, tmp_path / "ends", "a"))
    first = await supervisor.serving("a")
    os.kill(first, signal.SIGKILL)
    await eventually(lambda: supervisor.pids["a"] not in {None, first})
    assert supervisor.reports == ["a ended (SIGKILL); will restart in 0.1 s"]
    assert supervisor.changes == 3  # started, ended, started again


async def test_the_delay_grows_with_each_exit(supervisor: RecordingSupervisor) -> None:
    """The delays before restarts grow up to the maximum."""
    supervisor.start(program("a", "import sys; sys.exit(3)"))
    await eventually(lambda: len(supervisor.reports) >= 4)
    assert [report.rpartition("in ")[2] for report in supervisor.reports[:4]] == [
        "0.1 s",
        "0.1 s",
        "0.2 s",
        "0.2 s",
    ]
    assert "exit code 3" in supervisor.reports[0]


async def test_a_healthy_run_resets_the_delay(tmp_path: Path) -> None:
    """After a healthy run, the delay is again the first delay."""
    supervisor = RecordingSupervisor(tmp_path, restarts=Restarts(first=0.05, maximum=9, healthy_after=0))
    supervisor.start(program("a", ""))
    await eventually(lambda: len(supervisor.reports) >= 3)
    await supervisor.stop()
    assert {report.rpartition("in ")[2] for report in supervisor.reports} == {"0.1 s"}


def test_delays_double_up_to_the_maximum() -> None:
    """The delays double from 0.2 s up to 10 s, and stay at 10 s after any number of exits."""
    restarts = Restarts()
    assert [restarts.delay(exits) for exits in range(1, 9)] == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10, 10]
    assert restarts.delay(10_000) == 10


async def test_programs_end_in_reverse_order(tmp_path: Path) -> None:
    """`stop` stops the programs one after the other, in reverse order, and does not restart them."""
    supervisor = RecordingSupervisor(tmp_path / "logs")
    for name in "abc":
        supervisor.start(program(name, SERVE, tmp_path / "ends", name))
    for name in "abc":
        await supervisor.serving(name)
    await supervisor.stop()
    assert (tmp_path / "ends").read_text().split() == ["c", "b", "a"]
    assert supervisor.reports == []


async def test_a_program_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    """A program that ignores SIGTERM is killed after the grace period, and this is reported."""
    supervisor = RecordingSupervisor(tmp_path, grace=0.2)
    supervisor.start(program("a", STUBBORN))
    await supervisor.serving("a")
    await asyncio.wait_for(supervisor.stop(), 60)
    assert supervisor.reports == ["a does not end in time and is killed"]


async def test_kill_does_not_wait(tmp_path: Path) -> None:
    """`kill` ends a program that ignores SIGTERM while `stop` waits for it."""
    supervisor = RecordingSupervisor(tmp_path, grace=600)
    supervisor.start(program("a", STUBBORN))
    await supervisor.serving("a")
    stopping = asyncio.create_task(supervisor.stop())
    await asyncio.sleep(0)  # `stop` sends SIGTERM and begins to wait
    supervisor.kill()
    await asyncio.wait_for(stopping, 60)


async def test_stop_during_a_restart_delay(tmp_path: Path) -> None:
    """`stop` does not wait for a program that is not running."""
    supervisor = RecordingSupervisor(tmp_path, restarts=Restarts(first=600, maximum=600))
    supervisor.start(program("a", "import sys; sys.exit(1)"))
    await eventually(lambda: bool(supervisor.reports))
    await asyncio.wait_for(supervisor.stop(), 60)


async def test_no_restart_with_an_invalid_configuration(supervisor: RecordingSupervisor) -> None:
    """After exit code 78, the supervisor fails with the program's last lines and does not restart the program."""
    supervisor.start(program("a", "import sys; print('CAUSEWAY_X: Field required'); sys.exit(78)"))
    with pytest.raises(ProgramFailed, match="a refuses its configuration:\n  CAUSEWAY_X: Field required"):
        await asyncio.wait_for(supervisor.wait_for_failure(), 60)
    assert supervisor.reports == []
    assert supervisor.pids == {"a": None}


async def test_the_report_has_the_last_line(supervisor: RecordingSupervisor) -> None:
    """The report of a restart has the program's last line."""
    supervisor.start(program("a", "import sys; print('one'); sys.exit('no such file')"))
    await eventually(lambda: bool(supervisor.reports))
    assert supervisor.reports[0].startswith("a ended (exit code 1); will restart in ")
    assert supervisor.reports[0].endswith(" s: no such file")


async def test_a_missing_program(supervisor: RecordingSupervisor) -> None:
    """The supervisor fails if a program does not exist; the error names the program."""
    supervisor.start(Program("a", ["/nowhere/at/all"], {}))
    with pytest.raises(ProgramFailed, match="a cannot be started"):
        await asyncio.wait_for(supervisor.wait_for_failure(), 60)


async def test_the_end_is_reported_while_grandchildren_run(supervisor: RecordingSupervisor) -> None:
    """The supervisor detects the end of a program although a child of the program keeps the output open."""
    code = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])"
    supervisor.start(program("a", code))
    await eventually(lambda: bool(supervisor.reports))


async def test_a_failed_restart_is_repeated(supervisor: RecordingSupervisor, tmp_path: Path) -> None:
    """The supervisor retries a failed restart until the program starts, and reports each failure."""
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\nexit 3\n")
    script.chmod(0o700)
    supervisor.start(Program("a", [str(script)], dict(os.environ)))
    await eventually(lambda: bool(supervisor.reports))
    script.rename(tmp_path / "aside")
    await eventually(lambda: sum("cannot be started" in report for report in supervisor.reports) >= 2)
    seen = len(supervisor.reports)
    (tmp_path / "aside").rename(script)
    await eventually(lambda: any("exit code 3" in report for report in supervisor.reports[seen:]))
