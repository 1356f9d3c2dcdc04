"""Keeps a set of programs running: starts them, restarts those that ended, stops them in reverse order."""

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
"""``EX_CONFIG`` of sysexits.h: the program reports that a restart will not help."""


@dataclass(frozen=True, slots=True)
class Program:
    """A program to run.

    Attributes:
        name: The name in messages and of the log file.
        command: The program and its arguments.
        environment: All environment variables.
    """

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Restarts:
    """The waits before restarts, in seconds.

    Attributes:
        first: The wait after the first death; each further death doubles it.
        most: The longest wait.
        healthy: After a run of this length, the next wait is ``first`` again.
    """

    first: float = 0.2
    most: float = 10.0
    healthy: float = 30.0

    def delay(self, deaths: int) -> float:
        """Return the wait after a number of deaths in a row."""
        return min(self.most, self.first * 2.0 ** min(deaths - 1, 30))


class ProgramFailed(CommandError):
    """A program cannot run, and a restart will not help."""


@dataclass(slots=True)
class _Kept:
    program: Program
    log: OutputLog
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    process: asyncio.subprocess.Process | None = None
    copy: asyncio.Task[None] | None = None
    deaths: int = 0
    keeper: asyncio.Task[None] | None = None


class Supervisor:
    """Runs programs in one process group, which dies with this process.

    Args:
        logs: Directory of the log files, one per program.
        report: Gets one line per death and restart.
        changed: Called when the process id of a program changes.
        echo: Gets the name and each line of a program's output.
        restarts: The waits before restarts.
        grace: Seconds from SIGTERM to SIGKILL, for each program.
        held: File descriptors that stay open until all programs have ended.
    """

    def __init__(
        self,
        logs: Path,
        *,
        report: Callable[[str], None],
        changed: Callable[[], None] = lambda: None,
        echo: Callable[[str, str], None] | None = None,
        restarts: Restarts = Restarts(),  # frozen
        grace: float = 10.0,
        held: Sequence[int] = (),
    ) -> None:
        self._logs = logs
        self._report = report
        self._changed = changed
        self._echo = echo
        self._restarts = restarts
        self._grace = grace
        self._lifeline = Lifeline(held)
        self._kept: dict[str, _Kept] = {}
        self._copies: set[asyncio.Task[None]] = set()
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def pids(self) -> dict[str, int | None]:
        """Return the process ids by program, in the order of the start; None for a program that does not run."""
        return {name: kept.process.pid if kept.process else None for name, kept in self._kept.items()}

    @property
    def deaths(self) -> dict[str, int]:
        """Return the number of deaths in a row of each program."""
        return {name: kept.deaths for name, kept in self._kept.items()}

    def last_lines(self, name: str) -> tuple[str, ...]:
        """Return the last lines of a program's output."""
        return self._kept[name].log.last_lines

    def start(self, program: Program) -> None:
        """Start a program and keep it running until `stop`."""
        name = program.name
        echo = self._echo
        log = OutputLog(self._logs / f"{name}.log", None if echo is None else lambda line: echo(name, line))
        kept = self._kept[name] = _Kept(program, log)
        kept.keeper = asyncio.create_task(self._keep(kept))

    async def failure(self) -> None:
        """Wait until a program fails permanently.

        Raises:
            ProgramFailed: A program has failed; the message contains its last lines.
        """
        await asyncio.shield(self._failure)

    async def _keep(self, kept: _Kept) -> None:
        name = kept.program.name
        clock = asyncio.get_running_loop().time
        while not kept.stopping.is_set():
            began = clock()
            try:
                kept.process = await self._spawn(kept)
            except OSError as error:
                if not kept.deaths:
                    self._fail(f"{name} cannot be started: {error}")
                    return
                # The program ran before, so a missing resource, such as memory, may become available again.
                kept.deaths += 1
                delay = self._restarts.delay(kept.deaths)
                self._report(f"{name} cannot be started ({error}); will retry in {delay:.1f} s")
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(kept.stopping.wait(), delay)
                continue
            self._changed()
            if kept.stopping.is_set():
                _signal(kept, signal.SIGTERM)
            code = await kept.process.wait()
            kept.process = None
            if kept.stopping.is_set():
                return
            self._changed()
            assert kept.copy is not None
            await asyncio.wait([kept.copy], timeout=1)  # its last lines may still be in the pipe
            if code == EXIT_CONFIGURATION:
                self._fail(with_last_lines(f"{name} refuses its configuration", kept.log.last_lines))
                return
            kept.deaths = 1 if clock() - began >= self._restarts.healthy else kept.deaths + 1
            delay = self._restarts.delay(kept.deaths)
            self._report(f"{name} ended ({_how(code)}); starting it again in {delay:.1f} s{_why(code, kept.log)}")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(kept.stopping.wait(), delay)

    async def _spawn(self, kept: _Kept) -> asyncio.subprocess.Process:
        # Our own pipe, because asyncio's pipe would wait for the program's children, which inherit it.
        ours, theirs = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *kept.program.command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=theirs,
                stderr=theirs,
                env=dict(kept.program.environment),
                process_group=self._lifeline.group,
            )
        except OSError:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        kept.copy = asyncio.create_task(kept.log.copy(ours))
        self._copies.add(kept.copy)
        kept.copy.add_done_callback(self._copies.discard)
        return process

    def _fail(self, message: str) -> None:
        if not self._failure.done():
            self._failure.set_exception(ProgramFailed(message))
            self._failure.exception()  # retrieved also if no task waits for it

    async def stop(self) -> None:
        """Stop the programs in reverse order of the start: SIGTERM, and SIGKILL after the grace period."""
        for kept in reversed(self._kept.values()):
            await self._stop(kept)
        self._lifeline.close()
        if self._copies:
            # A process that has left the group may keep a pipe open; do not wait for it.
            _, pending = await asyncio.wait(self._copies, timeout=1)
            for copy in pending:
                copy.cancel()
            await asyncio.gather(*pending, return_exceptions=True)
        for kept in self._kept.values():
            kept.log.close()

    async def _stop(self, kept: _Kept) -> None:
        assert kept.keeper is not None
        kept.stopping.set()
        _signal(kept, signal.SIGTERM)
        _, pending = await asyncio.wait([kept.keeper], timeout=self._grace)
        if pending:
            self._report(f"{kept.program.name} does not end; killing it")
            _signal(kept, signal.SIGKILL)
        await kept.keeper

    def kill(self) -> None:
        """Kill all programs immediately; the caller must still call `stop`, which then need not wait."""
        for kept in self._kept.values():
            kept.stopping.set()
            _signal(kept, signal.SIGKILL)


def _signal(kept: _Kept, sign: signal.Signals) -> None:
    if kept.process is not None:
        with contextlib.suppress(ProcessLookupError):  # the process has just ended
            kept.process.send_signal(sign)


def _how(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    with contextlib.suppress(ValueError):
        return signal.Signals(-code).name
    return f"signal {-code}"


def _why(code: int, log: OutputLog) -> str:
    """Return the last line of a program that exited by itself; a killed program has no reason in its log."""
    return f": {log.last_lines[-1]}" if code > 0 and log.last_lines else ""


def with_last_lines(message: str, lines: Sequence[str]) -> str:
    """Return a message about a program, followed by the last lines of its output."""
    return "\n  ".join([f"{message}:", *lines]) if lines else message
