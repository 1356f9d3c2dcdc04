"""Functions for a program that runs as a child process of `servicekit.child_processes`.

A request consists of the length of a body (in four bytes), the body and a nonce. The program writes its response as
frames, and then repeats the nonce. It handles an untrusted request in a fork. The fork can harm only the response
to its own request: it cannot read the nonce, because the program reads the nonce only after the end of the fork.

The module imports only the standard library, so that a process that forks for each request needs little memory, and
so that a script on another Python can load the module from its file.
"""

import contextlib
import ctypes
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

PREFIX = 4  # bytes of the length before each frame
NONCE = 16  # bytes of the nonce after each request
_STDIN, _STDOUT, _STDERR = 0, 1, 2
_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36


def framed(body: bytes) -> bytes:
    """Return a frame: the length of a body, then the body."""
    return len(body).to_bytes(PREFIX) + body


def serve(out: BinaryIO, handle: Callable[[bytes], None]) -> int:
    """Handle requests until stdin ends; return the exit code.

    Args:
        out: The stream that `response_stream` returned.
        handle: Handles a request: writes the frames of its response into ``out``.
    """
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)  # processes that a fork leaves behind become children of this one
    _prctl(_PR_SET_DUMPABLE, 0)  # no fork may open this process' descriptors or memory in /proc
    out.write(framed(b""))  # ready
    out.flush()
    # Not buffered: the nonce must not be in this process' memory before the fork has ended.
    while prefix := _read(PREFIX):
        handle(_read(int.from_bytes(prefix)))
        _end_descendants()
        out.write(_read(NONCE))
        out.flush()
    return 0


def run_forked(work: Callable[[], None]) -> int:
    """Run a function in a fork and return the fork's exit code, which is negative after a signal.

    The fork reads no requests and writes nothing to the terminal or the log.
    """
    process = os.fork()
    if process == 0:
        status = 1
        try:
            die_with_parent()
            _discard(_STDIN, _STDOUT, _STDERR)
            work()
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(process, 0)
    return os.waitstatus_to_exitcode(status)


def response_stream() -> BinaryIO:
    """Return the stream for the responses, a copy of stdout.

    Other output on stdout is discarded. The process ends with its parent, and ignores SIGINT from the terminal; its
    parent handles it.
    """
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    stream = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    _discard(_STDOUT)
    return stream


def die_with_parent() -> None:
    """Make the kernel kill this process when its parent dies for any reason (prctl(2))."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def limit_resources(cpu_seconds: int, memory: int) -> None:
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
    """Return the bytes of address space that the process uses; 0 on systems other than Linux."""
    if sys.platform != "linux":
        return 0
    return int(Path("/proc/self/statm").read_bytes().split()[0]) * resource.getpagesize()


def _read(size: int) -> bytes:
    """Return the next bytes of stdin; empty after its end.

    Raises:
        EOFError: Stdin ends within the bytes.
    """
    read = bytearray()
    while len(read) < size:
        piece = os.read(_STDIN, size - len(read))
        if not piece:
            if read:
                raise EOFError
            break
        read += piece
    return bytes(read)


def _discard(*descriptors: int) -> None:
    """Connect descriptors to the null device."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in descriptors:
        os.dup2(nowhere, descriptor)
    os.close(nowhere)


def _end_descendants() -> None:
    """Kill the processes that a fork has left behind, and wait for their end. Only Linux can find them."""
    with contextlib.suppress(ChildProcessError):  # none is left
        while True:
            if os.waitpid(-1, os.WNOHANG)[0]:
                continue  # it had ended
            for child in _children():
                os.kill(child, signal.SIGKILL)  # its id stays valid until this process waits for it
            os.waitpid(-1, 0)


def _children() -> Iterator[int]:
    """Yield the ids of this process' children."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # the process has ended
            # The name of the program, in parentheses, may contain any character.
            if int(path.read_bytes().rpartition(b")")[2].split()[1]) == os.getpid():
                yield int(path.parent.name)


def _prctl(option: int, value: int) -> None:
    """Set an attribute of this process (prctl(2)). Do nothing on systems other than Linux."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)
