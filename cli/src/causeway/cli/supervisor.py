"""Supervises a set of programs: starts them, restarts them when they exit, stops them in reverse order."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from causeway.cli.errors import CommandError
from causeway.cli.lifeline import Lifeline
from causeway.cli.output import OutputLog

EXIT_CONFIGURATION = 78
"""``EX_CONFIG`` of sysexits.h: the configuration is invalid, so a restart would fail again."""


@dataclass(frozen=True, slots=True)
class Program:
    """A program to run.

    Attributes:
        name: The name in messages and in the log file's name.
        command: The program and its arguments.
        environment: All environment variables.
    """

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Restarts:
    """The delays before restarts, in seconds.

    Attributes:
        first: The delay after the first exit; each further exit doubles it.
        maximum: The maximum delay.
        healthy_after: After a run of this duration, the next delay is ``first`` again.
    """

    first: float = 0.2
    maximum: float = 10.0
    healthy_after: float = 30.0

    def delay(self, exits: int) -> float:
        """Return the delay after a number of consecutive exits."""
        return min(self.maximum, self.first * 2.0 ** min(exits - 1, 30))


class ProgramFailed(CommandError):
    """A program cannot run, and a restart would fail again."""


@dataclass(slots=True)
class _Supervised:
    program: Program
    log: OutputLog
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    process: asyncio.subprocess.Process | None = None
    copy_task: asyncio.Task[None] | None = None
    exits: int = 0
    supervision: asyncio.Task[None] | None = None


class Supervisor:
    """Runs programs in one process group, which ends with this process.

    Args:
        logs: Directory of the log files, one per program.
        report: Called with a message, for example that a program ended and will restart.
        on_pid_change: Called when the process id of a program changes.
        echo: Called with the name of a program and each line of its output.
        restarts: The delays before restarts.
        grace: Seconds from SIGTERM to SIGKILL, for each program.
        pass_fds: File descriptors that remain open until all programs have ended.
    """

    def __init__(
        self,
        logs: Path,
        *,
        report: Callable[[str], None],
        on_pid_change: Callable[[], None] = lambda: None,
        echo: Callable[[str, str], None] | None = None,
        restarts: Restarts = Restarts(),  # frozen
        grace: float = 10.0,
        pass_fds: Sequence[int] = (),
    ) -> None:
        self._logs = logs
        self._report = report
        self._on_pid_change = on_pid_change
        self._echo = echo
        self._restarts = restarts
        self._grace = grace
        self._lifeline = Lifeline(pass_fds)
        self._programs: dict[str, _Supervised] = {}
        self._copy_tasks: set[asyncio.Task[None]] = set()
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def pids(self) -> dict[str, int | None]:
        """Return the process ids by program, in the order of the start; None for a program that does not run."""
        return {
            name: supervised.process.pid if supervised.process else None
            for name, supervised in self._programs.items()
        }

    @property
    def exits(self) -> dict[str, int]:
        """Return the number of consecutive exits of each program."""
        return {name: supervised.exits for name, supervised in self._programs.items()}

    def last_lines(self, name: str) -> tuple[str, ...]:
        """Return the last lines of a program's output."""
        return self._programs[name].log.last_lines

    def start(self, program: Program) -> None:
        """Start a program and restart it after each exit, until `stop` or a failure (`wait_for_failure`)."""
        name = program.name
        echo = self._echo
        log = OutputLog(self._logs / f"{name}.log", None if echo is None else lambda line: echo(name, line))
        supervised = self._programs[name] = _Supervised(program, log)
        supervised.supervision = asyncio.create_task(self._supervise(supervised))

    async def wait_for_failure(self) -> None:
        """Wait until a program fails permanently.

        Raises:
            ProgramFailed: A program has failed; the message contains its last lines.
        """
        await asyncio.shield(self._failure)

    async def _supervise(self, supervised: _Supervised) -> None:
        name = supervised.program.name
        clock = asyncio.get_running_loop().time
        while not supervised.stopping.is_set():
            began = clock()
            try:
                supervised.process = await self._spawn(supervised)
            except OSError as error:
                if not supervised.exits:
                    self._fail(f"{name} cannot be started: {error}")
                    return
                # The program ran before. A missing resource, such as memory, may become available again.
                supervised.exits += 1
                delay = self._restarts.delay(supervised.exits)
                self._report(f"{name} cannot be started ({error}); will retry in {delay:.1f} s")
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(supervised.stopping.wait(), delay)
                continue
            self._on_pid_change()
            if supervised.stopping.is_set():
                _signal(supervised, signal.SIGTERM)
            code = await supervised.process.wait()
            supervised.process = None
            if supervised.stopping.is_set():
                return
            self._on_pid_change()
            assert supervised.copy_task is not None
            await asyncio.wait([supervised.copy_task], timeout=1)  # the pipe may still contain the last lines
            if code == EXIT_CONFIGURATION:
                self._fail(with_last_lines(f"{name} refuses its configuration", supervised.log.last_lines))
                return
            supervised.exits = 1 if clock() - began >= self._restarts.healthy_after else supervised.exits + 1
            delay = self._restarts.delay(supervised.exits)
            reason = _last_line(code, supervised.log)
            self._report(f"{name} ended ({_exit_text(code)}); will restart in {delay:.1f} s{reason}")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(supervised.stopping.wait(), delay)

    async def _spawn(self, supervised: _Supervised) -> asyncio.subprocess.Process:
        # With a pipe of asyncio, `wait` would also wait for the program's children, which inherit the pipe.
        read_end, write_end = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *supervised.program.command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=write_end,
                stderr=write_end,
                env=dict(supervised.program.environment),
                process_group=self._lifeline.group,
            )
        except OSError:
            os.close(read_end)
            raise
        finally:
            os.close(write_end)
        supervised.copy_task = asyncio.create_task(supervised.log.copy(read_end))
        self._copy_tasks.add(supervised.copy_task)
        supervised.copy_task.add_done_callback(self._copy_tasks.discard)
        return process

    def _fail(self, message: str) -> None:
        if not self._failure.done():
            self._failure.set_exception(ProgramFailed(message))
            self._failure.exception()  # asyncio would log an exception that no task retrieves

    async def stop(self) -> None:
        """Stop the programs in reverse order of the start: SIGTERM, and SIGKILL after the grace period."""
        for supervised in reversed(self._programs.values()):
            await self._stop(supervised)
        self._lifeline.close()
        if self._copy_tasks:
            # A process that has left the group may keep a pipe open, so the wait has a time-out.
            _, pending = await asyncio.wait(self._copy_tasks, timeout=1)
            for task in pending:
                task.cancel()
            await asyncio.gather(*pending, return_exceptions=True)
        for supervised in self._programs.values():
            supervised.log.close()

    async def _stop(self, supervised: _Supervised) -> None:
        assert supervised.supervision is not None
        supervised.stopping.set()
        _signal(supervised, signal.SIGTERM)
        _, pending = await asyncio.wait([supervised.supervision], timeout=self._grace)
        if pending:
            self._report(f"{supervised.program.name} does not end in time and is killed")
            _signal(supervised, signal.SIGKILL)
        await supervised.supervision

    def kill(self) -> None:
        """Kill all programs immediately; the caller must still call `stop`, which then returns soon."""
        for supervised in self._programs.values():
            supervised.stopping.set()
            _signal(supervised, signal.SIGKILL)


def _signal(supervised: _Supervised, number: signal.Signals) -> None:
    if supervised.process is not None:
        with contextlib.suppress(ProcessLookupError):  # the process has just ended
            supervised.process.send_signal(number)


def _exit_text(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    with contextlib.suppress(ValueError):
        return signal.Signals(-code).name
    return f"signal {-code}"


def _last_line(code: int, log: OutputLog) -> str:
    """Return the last line of a program that exited with an error; a killed program has not logged a reason."""
    return f": {log.last_lines[-1]}" if code > 0 and log.last_lines else ""


def with_last_lines(message: str, lines: Sequence[str]) -> str:
    """Return a message about a program, followed by the last lines of its output."""
    return "\n  ".join([f"{message}:", *lines]) if lines else message
