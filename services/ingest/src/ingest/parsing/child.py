"""The parsing child: ``python -m ingest.parsing.child``, requests on stdin, frames on stdout.

It loads the parsers once and forks for each document, so that a document gets a process of its own at the price of
a fork, not of a start: nothing of one document is left when the next one comes, and limits count from zero. When a
fork dies, the child dies the same way, and the worker starts another.

The fork is most of what a short text costs. `ingest.parsing.short_text` says which ones need none.
"""

import ctypes
import errno
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from ingest.parsing import frames
from ingest.parsing.content import Page, Part
from ingest.parsing.detect import detect
from ingest.parsing.frames import Defect, Done, Ready, Refused, Request
from ingest.parsing.readers import READERS
from ingest.parsing.refusals import Refusal, TooLarge, Unreadable
from ingest.parsing.short_text import is_short_text

_LONGEST_STACK = 8000
_OPEN_FILES = 64
_PR_SET_PDEATHSIG = 1


def parse(request: Request) -> Iterator[Part]:
    """Yield what the requested file holds.

    Raises:
        Refusal: The document cannot be read.
    """
    found = detect(Path(request.path), request.suffix)
    yield from READERS[found.module].parse(request)


def serve(
    parser: Callable[[Request], Iterator[Part]] = parse,
    is_harmless: Callable[[Request], bool] = lambda _: False,
) -> int:
    """Answers requests until stdin ends; returns the exit code.

    Args:
        parser: Reads a document.
        is_harmless: Whether a document is read in this process, without a fork and its limits.
    """
    _die_with_parent()
    # Frames get a descriptor of their own: what a library prints must not come between them.
    out = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
    out.write(frames.encode(Ready()))
    out.flush()
    while (request := frames.read_request(sys.stdin.buffer)) is not None:
        if is_harmless(request):
            _answer(parser, request, out)
            continue
        process = os.fork()
        if process == 0:
            status = 1
            try:
                _die_with_parent()
                _limit(request)
                _answer(parser, request, out)
                status = 0
            finally:
                os._exit(status)
        _, status = os.waitpid(process, 0)
        if status:
            code = os.waitstatus_to_exitcode(status)
            return code if code > 0 else 128 - code  # as a shell reports a signal
    return 0


def _answer(parser: Callable[[Request], Iterator[Part]], request: Request, out: BinaryIO) -> None:
    last: frames.Frame
    try:
        characters = 0
        for part in parser(request):
            if isinstance(part, Page):
                characters += sum(len(section.text) for section in part.sections)
                if characters > request.max_characters:
                    raise TooLarge.characters(request.max_characters)
            out.write(frames.encode(part))
        last = Done()
    except Refusal as refusal:
        last = Refused(type(refusal).__name__, str(refusal))
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.EFBIG):
            last = Defect(traceback.format_exc()[-_LONGEST_STACK:])
        else:
            last = Refused(TooLarge.__name__, "The document needs more open, or larger, files than it may have.")
    except MemoryError:
        last = Refused(TooLarge.__name__, "The document needs more memory to be read than it may have.")
    except RecursionError:
        last = Refused(Unreadable.__name__, "The document is nested too deeply.")
    except Exception:  # the boundary: the stack goes to the worker's log
        last = Defect(traceback.format_exc()[-_LONGEST_STACK:])
    out.write(frames.encode(last))
    out.flush()


def _limit(request: Request) -> None:
    """Bounds what the process may use. Going over the CPU time kills it."""
    resource.setrlimit(resource.RLIMIT_CPU, (request.cpu_seconds, request.cpu_seconds + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (_OPEN_FILES, _OPEN_FILES))
    if sys.platform == "linux":  # elsewhere the limit is not kept, or cannot be set
        resource.setrlimit(resource.RLIMIT_AS, (request.memory, request.memory))


def _die_with_parent() -> None:
    """Lets the kernel kill this process when its parent dies, however that dies (prctl(2))."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is the worker's to handle
    sys.exit(serve(is_harmless=is_short_text))
