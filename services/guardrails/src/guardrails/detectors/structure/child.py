"""The child process that checks the format of texts (JSON, YAML, XML). It exchanges frames over stdin and stdout.

``python -m guardrails.detectors.structure.child`` starts it. The process loads the parsers once and forks for each
text. A fork starts fast, sets its own resource limits, and exits after it has checked one text. If a signal kills a
fork, the process reports this to its parent.
"""

import signal
import sys
from collections.abc import Callable
from typing import BinaryIO

import msgspec
from servicekit import child_program
from servicekit.child_program import framed, limit_resources, used_memory

from guardrails.detectors.structure.formats import reason


class Request(msgspec.Struct):
    """A text to check.

    Attributes:
        text: The text.
        formats: The formats to check, as in `formats.reason`.
        required: The minimum number of JSON objects in the text, for ``json-within``.
        seconds: The maximum CPU time of the check, in whole seconds.
        memory: The maximum number of bytes that the check may add to the address space.
    """

    text: str
    formats: list[str]
    required: int
    seconds: int
    memory: int


class Answer(msgspec.Struct, tag=True):
    """The reason why the text is invalid, for each format; empty for a format in which the text is valid."""

    reasons: list[str]


class Failed(msgspec.Struct, tag=True):
    """The check failed; the message is for the client."""

    message: str


Frame = Answer | Failed


def serve(check: Callable[[str, str, int], str] = reason) -> int:
    """Handle requests until stdin ends; return the exit code."""
    out = child_program.response_stream()

    def answer(body: bytes) -> None:
        def limited() -> None:
            request = msgspec.msgpack.decode(body, type=Request)
            limit_resources(request.seconds, used_memory() + request.memory)
            _send(out, _answer(check, request))

        code = child_program.run_forked(limited)
        if code < 0:
            name = signal.Signals(-code).name
            _send(out, Failed(f"a signal ended the parser while it checked the text ({name})"))
        elif code:
            _send(out, Failed("the parser failed on the text"))

    return child_program.serve(out, answer)


def _answer(check: Callable[[str, str, int], str], request: Request) -> Frame:
    try:
        return Answer([check(request.text, text_format, request.required) for text_format in request.formats])
    except MemoryError:
        return Failed("the text needs more memory than a check may use")


def _send(out: BinaryIO, frame: Frame) -> None:
    out.write(framed(msgspec.msgpack.encode(frame)))
    out.flush()


if __name__ == "__main__":
    sys.exit(serve())
