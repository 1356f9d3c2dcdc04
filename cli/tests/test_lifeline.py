import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from causeway.cli.lifeline import Lifeline

# A program that starts a child, which ignores SIGTERM and has its own child, and prints all process ids.
_PARENT = """
import os, subprocess, sys, time
from causeway.cli.lifeline import Lifeline
lifeline = Lifeline()
code = '''
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
grandchild = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(os.getpid(), grandchild.pid, flush=True)
time.sleep(600)
'''
subprocess.Popen([sys.executable, "-c", code], process_group=lifeline.group)
print(lifeline.group, flush=True)
time.sleep(600)
"""


def _alive(pid: int) -> bool:
    """Return whether a process runs. A process that has ended and was not waited for does not run."""
    if not Path("/proc").is_dir():
        found = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
        return bool(found.stdout.strip()) and not found.stdout.strip().startswith("Z")
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _all_end(pids: list[int], within: float = 60) -> bool:
    end = time.monotonic() + within
    while any(_alive(pid) for pid in pids):
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def test_descendants_of_a_killed_parent_end() -> None:
    """SIGKILL to the parent also ends its children and grandchildren, even if they ignore SIGTERM."""
    with subprocess.Popen([sys.executable, "-c", _PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pids = [int(pid) for _ in range(2) for pid in parent.stdout.readline().split()]
        assert len(pids) == 3
        assert all(_alive(pid) for pid in pids)
        parent.kill()
        assert _all_end(pids)


def test_closing_kills_the_group() -> None:
    """`close` kills the group and returns."""
    lifeline = Lifeline()
    with subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"], process_group=lifeline.group
    ) as child:
        lifeline.close()
        assert child.wait(60) == -signal.SIGKILL


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_guard_ignores_signals(sign: signal.Signals) -> None:
    """A signal to the whole session does not end the guard process."""
    lifeline = Lifeline()
    time.sleep(0.1)  # the shell of the guard needs time to set its traps
    os.kill(lifeline.group, sign)
    time.sleep(0.1)
    assert _alive(lifeline.group)
    lifeline.close()


def test_descriptors_are_open_until_the_group_ends(tmp_path: Path) -> None:
    """A descriptor that the parent has closed, such as a lock, remains open until the group ends."""
    read, write = os.pipe()
    lifeline = Lifeline([write])
    os.close(write)
    os.set_blocking(read, False)
    with pytest.raises(BlockingIOError):
        os.read(read, 1)
    lifeline.close()
    assert os.read(read, 1) == b""
    os.close(read)
