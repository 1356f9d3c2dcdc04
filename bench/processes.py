"""The processes of a benchmark, pinned to cores, and their resources."""

import contextlib
import os
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

_JSON = {"Content-Type": "application/json"}
_PAGE = os.sysconf("SC_PAGE_SIZE")
_MIB = 2**20
_TICKS = os.sysconf("SC_CLK_TCK")


def start_pinned(core: int, *command: str, environment: dict[str, str] | None = None) -> "subprocess.Popen[bytes]":
    """Start a program on one core, and discard its output."""
    return subprocess.Popen(
        command,
        env={**os.environ, **(environment or {})},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: os.sched_setaffinity(0, {core}),  # no threads are running yet
    )


@contextmanager
def running(*processes: "subprocess.Popen[bytes]") -> Iterator[list[int]]:
    """Yield the process ids, and stop the processes after the block."""
    try:
        yield [process.pid for process in processes]
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def wait_for(url: str, body: bytes | None = None, seconds: float = 30) -> None:
    """Wait until a request succeeds; raise its last error after a number of seconds."""
    end = time.monotonic() + seconds
    while True:
        try:
            urllib.request.urlopen(urllib.request.Request(url, body, _JSON), timeout=30)
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)
        else:
            return


def family(pids: Sequence[int]) -> list[int]:
    """Return the ids of the processes and of all their descendants; some processes may have ended."""
    found = list(pids)
    for pid in found:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for task in Path(f"/proc/{pid}/task").iterdir():
                found += map(int, (task / "children").read_text().split())
    return found


def cpu_seconds(pids: Sequence[int]) -> float:
    """Return the CPU seconds of processes and their descendants, user and system, including ended children."""
    return sum(map(_cpu_seconds, family(pids)))


def memory_mib(pids: Sequence[int]) -> float:
    """Return the sum of the resident memory of processes and their descendants in MiB.

    Each process counts the pages that it shares with others.
    """
    return sum(map(_pages, family(pids))) * _PAGE / _MIB


def resources_of(pid: int) -> dict[str, float]:
    """Return the memory in MiB, the descriptors and the threads of a process."""
    status = Path(f"/proc/{pid}/status").read_text()

    def mebibytes(field: str) -> float:
        return int(status.split(f"{field}:")[1].split()[0]) / 1024

    return {
        "memory_mb": mebibytes("VmRSS"),
        "own_mb": mebibytes("RssAnon"),
        "files_mb": mebibytes("RssFile"),
        "descriptors": len(os.listdir(f"/proc/{pid}/fd")),
        "threads": int(status.split("Threads:")[1].split()[0]),
    }


def reset_references(pid: int) -> None:
    """Reset the kernel's record of the pages that the process has used (proc_pid_clear_refs(5))."""
    Path(f"/proc/{pid}/clear_refs").write_text("1")


def referenced_mib(pid: int, path: str = "") -> float:
    """Return the memory in MiB that a process has used since `reset_references`.

    Args:
        pid: The process.
        path: Only mapped files whose path contains this text; empty: all memory.
    """
    total, is_selected = 0, False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        head = line.split(maxsplit=1)[0]
        if not head.endswith(":"):
            is_selected = path in line
        elif head == "Referenced:" and is_selected:
            total += int(line.split()[1])
    return total / 1024


def _cpu_seconds(pid: int) -> float:
    with contextlib.suppress(OSError):
        # The CPU clock of another process (clock_getcpuclockid) counts nanoseconds; /proc/PID/stat counts ticks.
        # Only the file has the CPU time of ended children (proc_pid_stat(5), cutime and cstime).
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return time.clock_gettime((~pid << 3) | 2) + (int(fields[13]) + int(fields[14])) / _TICKS
    return 0.0


def _pages(pid: int) -> int:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return 0
