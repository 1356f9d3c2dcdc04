"""The service's end of the processes that check texts."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from guardrails.detectors.port import DetectorFailed
from guardrails.detectors.structure import child
from guardrails.detectors.structure.child import Answer, Failed, Request

COMMAND: Sequence[str] = (sys.executable, "-P", "-m", "guardrails.detectors.structure.child")
_START_SECONDS = 60.0
_LONGEST_FRAME = 1024 * 1024
_TIMEOUT = 504


@dataclass(frozen=True, slots=True)
class CheckLimits:
    """What the check of one text may cost.

    Attributes:
        seconds: Longest wall time and, rounded up, CPU time.
        memory: Most bytes of memory.
        processes: Texts that are checked at the same time; further ones wait.
    """

    seconds: float = 1.0
    memory: int = 512 * 1024**2
    processes: int = 2


class CheckProcesses:
    """Checks each text in a process of its own, so that no text can harm the service.

    Keeps one idle process for each text that was checked at the same time. The first check starts one.

    Args:
        limits: What one text may cost.
        command: Starts a process.
    """

    def __init__(self, limits: CheckLimits, command: Sequence[str] = COMMAND) -> None:
        self._limits = limits
        self._command = command
        self._free = asyncio.Semaphore(limits.processes)
        self._idle: list[asyncio.subprocess.Process] = []

    async def reasons(self, text: str, kinds: Sequence[str], required: int) -> list[str]:
        """Return, for each format, why a text does not have it; empty where it does.

        Args:
            text: The text.
            kinds: The formats, as in `formats.reason`.
            required: Objects that the text must have, for ``json-within``.

        Raises:
            DetectorFailed: The check took too long or too much memory, or its process died.
        """
        limits = self._limits
        request = Request(text, list(kinds), required, int(limits.seconds) + 1, limits.memory)
        async with self._free:
            process = self._idle.pop() if self._idle else await self._start()
            frame: child.Frame | None = None
            try:
                async with asyncio.timeout(limits.seconds):
                    assert process.stdin is not None
                    process.stdin.write(child.encode(request))
                    await process.stdin.drain()
                    frame = await _frame(process)
            except TimeoutError:
                raise DetectorFailed(f"the detector took longer than {limits.seconds:g} s", _TIMEOUT) from None
            except (asyncio.IncompleteReadError, ConnectionError, ValueError) as error:
                raise DetectorFailed("the process that checks texts ended") from error
            finally:
                if frame is None:
                    await _kill(process)
                else:
                    self._idle.append(process)
        if isinstance(frame, Answer):
            return frame.reasons
        raise DetectorFailed(frame.message if isinstance(frame, Failed) else "the check gave no answer")

    async def aclose(self) -> None:
        """End the idle processes."""
        idle, self._idle = self._idle, []
        for process in idle:
            await _kill(process)

    async def _start(self) -> asyncio.subprocess.Process:
        """Return a process that waits for requests. Its start counts against no text."""
        process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={},  # nothing of the service's settings or secrets
            start_new_session=True,  # so that a process and its forks are killed together
        )
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


async def _frame(process: asyncio.subprocess.Process) -> child.Frame:
    assert process.stdout is not None
    size = int.from_bytes(await process.stdout.readexactly(child.PREFIX))
    if size > _LONGEST_FRAME:
        raise ValueError(f"a frame of {size} bytes")
    body = await process.stdout.readexactly(size)
    frame: child.Frame = msgspec.msgpack.decode(body, type=child.Frame)
    return frame


async def _kill(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
