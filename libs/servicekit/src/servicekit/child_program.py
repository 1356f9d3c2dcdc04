"""What a program needs to run as a child process of `servicekit.child_processes`.

The module imports only the standard library, so that a child that forks for each question stays small.
"""

import ctypes
import os
import resource
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

PREFIX = 4  # bytes of the length before each frame
_PR_SET_PDEATHSIG = 1


def framed(body: bytes) -> bytes:
    """Return a body after its length."""
    return len(body).to_bytes(PREFIX) + body


def questions() -> Iterator[bytes]:
    """Yield the questions until stdin ends."""
    while len(prefix := sys.stdin.buffer.read(PREFIX)) == PREFIX:
        yield sys.stdin.buffer.read(int.from_bytes(prefix))


def answers() -> BinaryIO:
    """Return the stream of the answers.

    Other output on stdout is discarded, and a signal of the terminal is left to the parent.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    stream = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
    return stream


def die_with_parent() -> None:
    """Make the kernel kill this process when its parent dies for any reason (prctl(2))."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def limit(cpu_seconds: int, memory: int) -> None:
    """Limit the process: it writes no files, and the kernel kills it if it exceeds its CPU time.

    Args:
        cpu_seconds: CPU time.
        memory: Bytes of address space. Only Linux enforces the limit.
    """
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    if sys.platform == "linux":  # other systems ignore or refuse the limit
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))


def used_memory() -> int:
    """Return the bytes of address space that the process uses; 0 on other systems than Linux."""
    if sys.platform != "linux":
        return 0
    return int(Path("/proc/self/statm").read_bytes().split()[0]) * resource.getpagesize()
