"""The service's end of the processes that check texts."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from guardrails.detectors.child_processes import ChildProcesses
from guardrails.detectors.port import DetectorFailed
from guardrails.detectors.structure import child
from guardrails.detectors.structure.child import Answer, Failed, Request

COMMAND: Sequence[str] = (sys.executable, "-P", "-m", "guardrails.detectors.structure.child")


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
    """Checks each text in a process of its own; see `ChildProcesses`.

    Args:
        limits: What one text may cost.
        command: Starts a process.
    """

    def __init__(self, limits: CheckLimits, command: Sequence[str] = COMMAND) -> None:
        self._limits = limits
        self._processes = ChildProcesses(command, limits.seconds, limits.processes)

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
        body = await self._processes.ask(msgspec.msgpack.encode(request))
        frame: child.Frame = msgspec.msgpack.decode(body, type=child.Frame)
        if isinstance(frame, Answer):
            return frame.reasons
        raise DetectorFailed(frame.message if isinstance(frame, Failed) else "the check gave no answer")

    async def aclose(self) -> None:
        """End the idle processes."""
        await self._processes.aclose()
