"""Checks the format of texts in child processes."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
from detection.detectors.port import DetectorFailed

from guardrails.detectors.child_processes import ChildProcesses
from guardrails.detectors.structure import child
from guardrails.detectors.structure.child import Answer, Request

COMMAND: Sequence[str] = (sys.executable, "-P", "-m", "guardrails.detectors.structure.child")


@dataclass(frozen=True, slots=True)
class CheckLimits:
    """Limits of the format checks.

    Attributes:
        seconds: The maximum elapsed time of one check. The maximum CPU time is the next greater whole number of
            seconds.
        memory: The maximum number of bytes that one check may allocate.
        processes: The maximum number of concurrent checks; further texts wait.
    """

    seconds: float = 1.0
    memory: int = 512 * 1024**2
    processes: int = 2


class CheckProcesses:
    """Checks each text in a child process; see `ChildProcesses`.

    Args:
        limits: The limits of the checks.
        command: The command that starts a child process.
    """

    def __init__(self, limits: CheckLimits, command: Sequence[str] = COMMAND) -> None:
        self._limits = limits
        self._processes = ChildProcesses(command, limits.seconds, limits.processes)

    async def reasons(self, text: str, formats: Sequence[str], required: int) -> list[str]:
        """Return for each format the reason why the text is invalid, or an empty string if the text is valid.

        Args:
            text: The text.
            formats: The formats, as in `formats.reason`.
            required: The minimum number of objects in the text, for ``json-within``.

        Raises:
            DetectorFailed: The check exceeded its limits, or the child process ended.
        """
        limits = self._limits
        request = Request(text, list(formats), required, int(limits.seconds) + 1, limits.memory)
        body = await self._processes.call(msgspec.msgpack.encode(request))
        frame: child.Frame = msgspec.msgpack.decode(body, type=child.Frame)
        if isinstance(frame, Answer):
            return frame.reasons
        raise DetectorFailed(frame.message)

    async def aclose(self) -> None:
        """Stop the idle processes."""
        await self._processes.aclose()
