"""The parsing child: ``python -m ingest.parsing.child`` reads requests from stdin and writes frames to stdout.

The process loads the parsers once and forks for each document. A fork starts quickly, has its own resource limits,
and exits after its document. When a fork crashes, the child exits with the same status, and the worker starts
another child.

For a short text, the fork would take most of the time. `ingest.parsing.short_text` decides which texts need none.
"""

import errno
import resource
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from servicekit import child_program
from servicekit.child_program import limit_resources

from ingest.parsing import frames
from ingest.parsing.content import Page, Part
from ingest.parsing.detect import detect
from ingest.parsing.frames import Defect, Done, Refused, Request
from ingest.parsing.readers import READERS
from ingest.parsing.refusals import Refusal, TooLarge, Unreadable
from ingest.parsing.short_text import is_short_text

_MAX_STACK_CHARACTERS = 8000
"""Maximum number of characters of a stack trace, from its end."""
_MAX_OPEN_FILES = 64


def parse(request: Request) -> Iterator[Part]:
    """Yield the parts of the requested file.

    Raises:
        Refusal: The document cannot be read.
    """
    detected = detect(Path(request.path), request.suffix)
    yield from READERS[detected.module].parse(request)


def serve(
    parser: Callable[[Request], Iterator[Part]] = parse,
    is_harmless: Callable[[Request], bool] = lambda _: False,
) -> int:
    """Respond to requests until stdin ends; return the exit code.

    Args:
        parser: Parses a document.
        is_harmless: Returns whether a document can be parsed in this process, without a fork and its limits.
    """
    out = child_program.response_stream()

    def respond(body: bytes) -> None:
        request = frames.decode_request(body)

        def limited() -> None:
            limit_resources(request.cpu_seconds, request.memory)
            resource.setrlimit(resource.RLIMIT_NOFILE, (_MAX_OPEN_FILES, _MAX_OPEN_FILES))
            _respond(parser, request, out)

        if is_harmless(request):
            _respond(parser, request, out)
        elif code := child_program.run_forked(limited):
            sys.exit(code if code > 0 else 128 - code)  # like a shell, for a signal

    return child_program.serve(out, respond)


def _respond(parser: Callable[[Request], Iterator[Part]], request: Request, out: BinaryIO) -> None:
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
            last = Defect(traceback.format_exc()[-_MAX_STACK_CHARACTERS:])
        else:
            last = Refused(TooLarge.__name__, "The document needs more open files, or larger files, than allowed.")
    except MemoryError:
        last = Refused(TooLarge.__name__, "The document needs more memory than allowed.")
    except RecursionError:
        last = Refused(Unreadable.__name__, "The document is nested too deeply.")
    except Exception:  # the outermost handler: the stack goes to the worker's log
        last = Defect(traceback.format_exc()[-_MAX_STACK_CHARACTERS:])
    out.write(frames.encode(last))
    out.flush()


if __name__ == "__main__":
    sys.exit(serve(is_harmless=is_short_text))
