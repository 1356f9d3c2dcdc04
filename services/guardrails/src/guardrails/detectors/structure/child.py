"""The process that checks texts: ``python -m guardrails.detectors.structure.child``, frames on stdin and stdout.

The process loads the parsers once and forks for each text. So a text costs a fork and no start, the limits count
from zero, and nothing of one text is left for the next. When a fork dies by a signal, the process tells its parent.
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

PREFIX = 4  # bytes of a frame's length
_PR_SET_PDEATHSIG = 1


class Ready(msgspec.Struct, tag=True):
    """The process takes requests."""


class Request(msgspec.Struct):
    """A text to check.

    Attributes:
        text: The text.
        kinds: The formats that it must have, each of them.
        required: Objects that it must have, for ``json-within``.
        seconds: CPU time that the check may take.
        memory: Most bytes of address space beyond those of the process before the check.
    """

    text: str
    kinds: list[str]
    required: int
    seconds: int
    memory: int


class Answer(msgspec.Struct, tag=True):
    """For each format, why the text does not have it; empty where it does."""

    reasons: list[str]


class Failed(msgspec.Struct, tag=True):
    """The check came to no end; the message is for the client."""

    message: str


Frame = Ready | Answer | Failed


def encode(message: Request | Frame) -> bytes:
    """Return a message with its length in front."""
    body = msgspec.msgpack.encode(message)
    return len(body).to_bytes(PREFIX) + body


def serve(check: Callable[[str, str, int], str] = reason) -> int:
    """Answer requests until stdin ends; return the exit code."""
    _die_with_parent()
    out = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    with Path(os.devnull).open("wb") as nowhere:  # what a library prints must not come between frames
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
    """Bound what the process may use. The kernel kills it when it takes more CPU time."""
    resource.setrlimit(resource.RLIMIT_CPU, (request.seconds, request.seconds + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    if sys.platform == "linux":  # elsewhere the limit is not kept, or cannot be set
        used = int(Path("/proc/self/statm").read_bytes().split()[0]) * resource.getpagesize()
        memory = used + request.memory
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))


def _die_with_parent() -> None:
    """Let the kernel kill this process when its parent dies, however that dies (prctl(2))."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is the service's to handle
    sys.exit(serve())
