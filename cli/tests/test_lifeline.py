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
line = Lifeline()
code = '''
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
grandchild = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(os.getpid(), grandchild.pid, flush=True)
time.sleep(600)
'''
subprocess.Popen([sys.executable, "-c", code], process_group=line.group)
print(line.group, flush=True)
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


def _gone(pids: list[int], within: float = 60) -> bool:
    end = time.monotonic() + within
    while any(_alive(pid) for pid in pids):
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def test_nothing_outlives_a_parent_that_is_killed() -> None:
    """SIGKILL to the parent ends its children, also those that ignore SIGTERM, and their children."""
    with subprocess.Popen([sys.executable, "-c", _PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pids = [int(pid) for _ in range(2) for pid in parent.stdout.readline().split()]
        assert len(pids) == 3
        assert all(_alive(pid) for pid in pids)
        parent.kill()
        assert _gone(pids)


def test_closing_kills_the_group() -> None:
    """`close` kills the group and returns."""
    line = Lifeline()
    with subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"], process_group=line.group
    ) as child:
        line.close()
        assert child.wait(60) == -signal.SIGKILL


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_guard_ignores_signals(sign: signal.Signals) -> None:
    """A signal to the whole session does not end the guard process."""
    line = Lifeline()
    time.sleep(0.1)  # until its shell ignores the signals
    os.kill(line.group, sign)
    time.sleep(0.1)
    assert _alive(line.group)
    line.close()


def test_descriptors_are_open_until_the_group_ends(tmp_path: Path) -> None:
    """The group holds a descriptor, such as a lock, that the parent has closed."""
    read, write = os.pipe()
    line = Lifeline([write])
    os.close(write)
    os.set_blocking(read, False)
    with pytest.raises(BlockingIOError):
        os.read(read, 1)
    line.close()
    assert os.read(read, 1) == b""
    os.close(read)
