"""The process that checks texts: ``python -m guardrails.detectors.structure.child``, with frames on stdin and
stdout.

The process loads the parsers once and forks for each text. A fork is quick, has fresh resource limits, and leaves
no data of one text for the next. If a signal kills a fork, the process reports it to its parent.
"""

import os
import signal
import sys
from collections.abc import Callable
from typing import BinaryIO

import msgspec
from servicekit.child_program import answers, die_with_parent, framed, limit, questions, used_memory

from guardrails.detectors.structure.formats import reason


class Request(msgspec.Struct):
    """A text to check.

    Attributes:
        text: The text.
        kinds: The formats; the text must be valid in each of them.
        required: Minimum number of JSON objects in the text, for ``json-within``.
        seconds: Limit on the CPU time of the check.
        memory: Number of bytes that the check may add to the address space.
    """

    text: str
    kinds: list[str]
    required: int
    seconds: int
    memory: int


class Answer(msgspec.Struct, tag=True):
    """The problem of the text for each format; empty if the text is valid."""

    reasons: list[str]


class Failed(msgspec.Struct, tag=True):
    """The check failed; the message is for the client."""

    message: str


Frame = Answer | Failed


def serve(check: Callable[[str, str, int], str] = reason) -> int:
    """Answer requests until stdin ends; return the exit code."""
    die_with_parent()
    out = answers()
    out.write(framed(b""))  # ready
    out.flush()
    for body in questions():
        process = os.fork()
        if process == 0:
            status = 1
            try:
                die_with_parent()
                request = msgspec.msgpack.decode(body, type=Request)
                limit(request.seconds, used_memory() + request.memory)
                _send(out, _answer(check, request))
                status = 0
            finally:
                os._exit(status)
        _, status = os.waitpid(process, 0)
        if os.WIFSIGNALED(status):
            name = signal.Signals(os.WTERMSIG(status)).name
            _send(out, Failed(f"a signal ended the parser while it checked the text ({name})"))
        elif status:
            _send(out, Failed("the parser failed on the text"))
    return 0


def _answer(check: Callable[[str, str, int], str], request: Request) -> Frame:
    try:
        return Answer([check(request.text, kind, request.required) for kind in request.kinds])
    except MemoryError:
        return Failed("the text needs more memory than a check may use")


def _send(out: BinaryIO, frame: Frame) -> None:
    out.write(framed(msgspec.msgpack.encode(frame)))
    out.flush()


if __name__ == "__main__":
    sys.exit(serve())
