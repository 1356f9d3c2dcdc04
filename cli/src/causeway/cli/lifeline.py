"""A process group that cannot outlive this process, not even when it is killed with SIGKILL."""

import subprocess
from collections.abc import Sequence

# The guard waits for the end of its standard input, which only this process holds open and which the kernel closes
# however this process ends. Then it kills its own group: itself and whoever joined, grandchildren too. A shell
# because it is small and there on every POSIX system; Linux alone would have PR_SET_PDEATHSIG, which does not reach
# grandchildren and fires when a thread ends.
_GUARD = "trap '' HUP INT TERM; read -r _; kill -KILL 0"


class Lifeline:
    """Started programs join its group; `close`, or the end of this process, kills what is left of it.

    Args:
        held: Descriptors that stay open until the group is gone: a lock on files that the group still writes to.
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
        """Id of the process group."""
        return self._guard.pid

    def close(self) -> None:
        """Kills what is left of the group."""
        assert self._guard.stdin is not None
        self._guard.stdin.close()
        self._guard.wait()
