"""The process that checks texts: ``python -m guardrails.detectors.structure.child``, with frames on stdin and
stdout.

The process loads the parsers once and forks for each text. A fork is quick, has fresh resource limits, and leaves
no data of one text for the next. If a signal kills a fork, the process reports it to its parent.
"""

import ctypes
import os
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import msgspec

from guardrails.detectors.structure.formats import reason

PREFIX = 4  # bytes of a frame's length field
_PR_SET_PDEATHSIG = 1


class Ready(msgspec.Struct, tag=True):
    """The process is ready for requests."""


class Request(msgspec.Struct):
    """A text to check.

    Attributes:
        text: The text.
        kinds: The formats that it must have, all of them.
        required: Objects that it must contain, for ``json-within``.
        seconds: Limit on the CPU time of the check.
        memory: Limit on the bytes of address space in addition to those before the check.
    """

    text: str
    kinds: list[str]
    required: int
    seconds: int
    memory: int


class Answer(msgspec.Struct, tag=True):
    """For each format, the reason why the text does not have it; empty if it has."""

    reasons: list[str]


class Failed(msgspec.Struct, tag=True):
    """The check failed; the message is for the client."""

    message: str


Frame = Ready | Answer | Failed


def encode(message: Request | Frame) -> bytes:
    """Return a message after its length field."""
    body = msgspec.msgpack.encode(message)
    return len(body).to_bytes(PREFIX) + body


def serve(check: Callable[[str, str, int], str] = reason) -> int:
    """Answer requests until stdin ends; return the exit code."""
    _die_with_parent()
    out = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    with Path(os.devnull).open("wb") as nowhere:  # output of libraries must not mix with frames
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
    _send(out, Ready())
    while len(prefix := sys.stdin.buffer.read(PREFIX)) == PREFIX:
        body = sys.stdin.buffer.read(int.from_bytes(prefix))
        process = os.fork()
        if process == 0:
            status = 1
            try:
                _die_with_parent()
                request = msgspec.msgpack.decode(body, type=Request)
                _limit(request)
                _send(out, _answer(check, request))
                status = 0
            finally:
                os._exit(status)
        _, status = os.waitpid(process, 0)
        if os.WIFSIGNALED(status):
            name = signal.Signals(os.WTERMSIG(status)).name
            _send(out, Failed(f"the parser ended on the text ({name})"))
        elif status:
            _send(out, Failed("the parser failed on the text"))
    return 0


def _answer(check: Callable[[str, str, int], str], request: Request) -> Frame:
    try:
        return Answer([check(request.text, kind, request.required) for kind in request.kinds])
    except MemoryError:
        return Failed("the text needs more memory than a check may take")


def _send(out: BinaryIO, frame: Frame) -> None:
    out.write(encode(frame))
    out.flush()


def _limit(request: Request) -> None:
    """Limit the resources of the process. The kernel kills it if it exceeds its CPU time."""
    resource.setrlimit(resource.RLIMIT_CPU, (request.seconds, request.seconds + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    if sys.platform == "linux":  # other systems ignore or refuse the limit
        used = int(Path("/proc/self/statm").read_bytes().split()[0]) * resource.getpagesize()
        memory = used + request.memory
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))


def _die_with_parent() -> None:
    """Make the kernel kill this process when its parent dies for any reason (prctl(2))."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the service handles Ctrl-C of a terminal
    sys.exit(serve())
