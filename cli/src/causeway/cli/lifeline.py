"""A process group that ends when this process ends, even if SIGKILL ends this process."""

import subprocess
from collections.abc import Sequence

# The guard waits for the end of its standard input, a pipe from this process. When this process ends for any
# reason, the kernel closes the pipe. Then the guard kills its process group: itself and all members, including
# grandchildren. The guard is a shell, because a shell is small and exists on every POSIX system. PR_SET_PDEATHSIG
# exists only on Linux, does not reach grandchildren, and also sends the signal when a thread ends.
_GUARD = "trap '' HUP INT TERM; read -r _; kill -KILL 0"


class Lifeline:
    """A process group that programs join; `close`, or the end of this process, kills the group.

    Args:
        pass_fds: File descriptors that remain open until the group has ended, such as a lock of the data directory.
    """

    def __init__(self, pass_fds: Sequence[int] = ()) -> None:
        self._guard = subprocess.Popen(  # noqa: S603  # a constant command
            ["/bin/sh", "-c", _GUARD],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            process_group=0,
            pass_fds=pass_fds,
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
