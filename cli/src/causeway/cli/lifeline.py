"""A process group that cannot outlive this process, even after SIGKILL."""

import subprocess
from collections.abc import Sequence

# The guard waits for the end of its standard input. Only this process holds it open, and the kernel closes it when
# this process ends for any reason. Then the guard kills its own group: itself and all members, including
# grandchildren. It is a shell because that is small and exists on every POSIX system. PR_SET_PDEATHSIG exists only
# on Linux, does not reach grandchildren, and fires when a thread ends.
_GUARD = "trap '' HUP INT TERM; read -r _; kill -KILL 0"


class Lifeline:
    """Started programs join its group; `close`, or the end of this process, kills the group.

    Args:
        held: Descriptors that stay open until the group has ended, such as a lock on files that it writes.
    """

    def __init__(self, held: Sequence[int] = ()) -> None:
        self._guard = subprocess.Popen(  # noqa: S603  # a constant command
            ["/bin/sh", "-c", _GUARD],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            process_group=0,
            pass_fds=held,
        )

    @property
    def group(self) -> int:
        """Return the id of the process group."""
        return self._guard.pid

    def close(self) -> None:
        """Kill the group."""
        assert self._guard.stdin is not None
        self._guard.stdin.close()
        self._guard.wait()
