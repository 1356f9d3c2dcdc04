"""Child processes that answer questions: each question is a frame on stdin, each answer a frame on stdout."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence

from detection.detectors.port import DetectorFailed

PREFIX = 4  # bytes of a frame's length field
_START_SECONDS = 60.0
_LONGEST_FRAME = 1024 * 1024
_TIMEOUT = 504


class ChildProcesses:
    """Runs each question in a child process, so that no text can harm the service.

    The first question starts a process. A process sends a frame when it is ready. Idle processes are reused; there
    are at most as many as there were concurrent questions. A process whose answer is late is killed with its forks.

    Args:
        command: The command that starts a process.
        seconds: Time limit of a question.
        processes: Limit of concurrent questions; further questions wait.
        environment: Variables of the processes, which see none of the service's settings or secrets.
    """

    def __init__(
        self, command: Sequence[str], seconds: float, processes: int, environment: Mapping[str, str] | None = None
    ) -> None:
        self._command = command
        self._seconds = seconds
        self._environment = dict(environment or {})
        self._free = asyncio.Semaphore(processes)
        self._idle: list[asyncio.subprocess.Process] = []

    async def ask(self, question: bytes) -> bytes:
        """Return the answer to a question; both are without the length field.

        Raises:
            DetectorFailed: The answer is late, or the process died.
        """
        async with self._free:
            process = self._idle.pop() if self._idle else await self._start()
            answer: bytes | None = None
            try:
                async with asyncio.timeout(self._seconds):
                    assert process.stdin is not None
                    process.stdin.write(len(question).to_bytes(PREFIX) + question)
                    await process.stdin.drain()
                    answer = await _frame(process)
            except TimeoutError:
                raise DetectorFailed(f"the detector took longer than {self._seconds:g} s", _TIMEOUT) from None
            except (asyncio.IncompleteReadError, ConnectionError, ValueError) as error:
                raise DetectorFailed("the process that checks texts ended") from error
            finally:
                if answer is None:
                    await _kill(process)
                else:
                    self._idle.append(process)
        return answer

    async def aclose(self) -> None:
        """Stop the idle processes."""
        idle, self._idle = self._idle, []
        for process in idle:
            await _kill(process)

    async def _start(self) -> asyncio.subprocess.Process:
        """Start a process and wait until it is ready. The time limit of a question does not include the start."""
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env=self._environment,
                start_new_session=True,  # a process group, so that a process and its forks can be killed together
            )
        except OSError as error:
            raise DetectorFailed("the process that checks texts does not start") from error
        try:
            async with asyncio.timeout(_START_SECONDS):
                await _frame(process)
        except (TimeoutError, asyncio.IncompleteReadError, ConnectionError, ValueError) as error:
            await _kill(process)
            raise DetectorFailed("the process that checks texts does not start") from error
        except BaseException:
            await _kill(process)
            raise
        return process


async def _frame(process: asyncio.subprocess.Process) -> bytes:
    assert process.stdout is not None
    size = int.from_bytes(await process.stdout.readexactly(PREFIX))
    if size > _LONGEST_FRAME:
        raise ValueError(f"a frame of {size} bytes")
    return await process.stdout.readexactly(size)


async def _kill(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
