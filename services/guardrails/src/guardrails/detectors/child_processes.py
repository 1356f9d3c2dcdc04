"""Child processes that run detectors."""

from collections.abc import Mapping, Sequence

from detection.detectors.port import DetectorFailed
from servicekit import child_processes
from servicekit.child_processes import ChildEnded, ChildNotStarted

_MAX_FRAME_BYTES = 1024 * 1024
_TIMEOUT = 504


class ChildProcesses:
    """Sends requests to child processes, with a time limit, and raises `DetectorFailed` for their failures.

    See `servicekit.child_processes.ChildProcesses`.

    Args:
        command: The command that starts a process.
        seconds: The time limit of a request.
        processes: The maximum number of concurrent requests; further requests wait.
        environment: The environment variables of the processes.
    """

    def __init__(
        self, command: Sequence[str], seconds: float, processes: int, environment: Mapping[str, str] | None = None
    ) -> None:
        self._seconds = seconds
        self._processes = child_processes.ChildProcesses(
            command, environment, max_frame_bytes=_MAX_FRAME_BYTES, processes=processes
        )

    async def call(self, request: bytes) -> bytes:
        """Return the response to a request.

        Raises:
            DetectorFailed: The process did not start, the time limit passed, or the process ended.
        """
        try:
            return await self._processes.call(request, self._seconds)
        except ChildNotStarted as error:
            raise DetectorFailed("the process that checks texts does not start") from error
        except TimeoutError:
            raise DetectorFailed(f"the detector took longer than {self._seconds:g} s", _TIMEOUT) from None
        except (ChildEnded, ValueError) as error:
            raise DetectorFailed("the process that checks texts ended") from error

    async def aclose(self) -> None:
        """Stop the idle processes."""
        await self._processes.aclose()
