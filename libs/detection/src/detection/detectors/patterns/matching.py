"""One compiled pattern: finds its matches in a complete or in a growing text."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from detection.detectors.patterns.engine import Regex
from detection.detectors.patterns.partial import partial
from detection.detectors.patterns.view import canonical
from detection.detectors.port import DetectorFailed

# The maximum memory, in bytes, of RE2 for a pattern's program and automata.
_MEMORY = 4 * 1024 * 1024
MEMORY = 2 * _MEMORY
"""The memory limit for a few patterns together."""
MANY_PATTERNS_MEMORY = 8 * MEMORY
"""The memory limit for many patterns together, for detectors that are built once per process."""

Accept = Callable[[bytes, int, int], bool]
"""Decides whether a match in a text is a detection."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern to search for.

    Attributes:
        type: Type of the detection, for example ``pii``.
        name: Name of the detection, for example ``email_address``.
        expression: The expression in RE2's syntax.
        accept: A check that regular expressions cannot express. After a rejected match, the search continues at the
            next character, so that it does not miss overlapping matches.
        grouped: The first group of the expression is the detection; the rest of the match is context.
        overlapping: After an accepted match, the search also continues at the next character.
        behind: The number of bytes before a match that ``accept`` may read.
        custom: The pattern comes from a caller, who may have made it expensive on purpose.
    """

    type: str
    name: str
    expression: str
    accept: Accept | None = None
    grouped: bool = False
    overlapping: bool = False
    behind: int = 1
    custom: bool = False


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one detector for one text. Above a limit, the detector fails.

    Attributes:
        held_back: The maximum number of held-back code points of a growing text.
        detections: The maximum number of detections of all patterns in a whole text, and of one pattern in a piece
            of a growing text.
        seconds: The maximum time for a text or for a piece.
    """

    held_back: int = 8192
    detections: int = 10_000
    seconds: float = 1.0

    def too_long(self) -> DetectorFailed:
        """Return the failure of a detector that would hold back too much text."""
        return DetectorFailed(f"more than {self.held_back} characters would have to be held back")

    def too_slow(self) -> DetectorFailed:
        """Return the failure of a detector that exceeds its time limit."""
        return DetectorFailed(f"the detector took longer than {self.seconds:g} s")

    def too_many(self) -> DetectorFailed:
        """Return the failure of a detector with too many detections."""
        return DetectorFailed(f"the detector found more than {self.detections} spans")


class Matcher:
    """A compiled pattern.

    Attributes:
        pattern: The pattern.
        partial_expression: The expression that finds the pattern in a text with the `SENTINEL`.
        size: See `Regex`.

    Raises:
        Unsupported: RE2 refuses the expression.
        ValueError: The expression cannot be matched in growing texts.
    """

    def __init__(self, pattern: Pattern) -> None:
        self.pattern = pattern
        expression = canonical(pattern.expression)
        self._whole = Regex(expression, memory=_MEMORY, group=pattern.grouped)
        self.partial_expression = partial(expression)
        self._partial = Regex(self.partial_expression, memory=_MEMORY)
        self.size = self._whole.size

    def matches_empty(self) -> bool:
        """Return whether the pattern can match an empty text."""
        return self._whole.matches_empty()

    def scan(
        self, text: bytes, start: int, end: int, limits: Limits, deadline: float
    ) -> tuple[list[tuple[int, int]], int]:
        """Return the certain matches from ``start`` on, and the start of the undecided text.

        Args:
            text: UTF-8; complete, or with the `SENTINEL` at its end.
            start: The position where the previous scan of the text ended.
            end: The end of the text, without the sentinel.
            limits: The limits of the scan.
            deadline: The time limit, on the monotonic clock.

        Raises:
            DetectorFailed: A limit was exceeded.
        """
        pattern = self.pattern
        regex = self._whole if end == len(text) else self._partial
        spans: list[tuple[int, int]] = []
        while True:
            begin, stop = regex.search(text, start)
            if begin < 0:
                return spans, end
            if stop > end:
                return spans, min(begin, end)
            if pattern.grouped:
                begin, stop = self._whole.group_at(text, begin)
            if begin < stop and (pattern.accept is None or pattern.accept(text, begin, stop)):
                spans.append((begin, stop))
                start = following(text, begin) if pattern.overlapping else stop
            elif begin == end:
                return spans, end
            else:
                start = following(text, begin)
            if len(spans) > limits.detections:
                raise limits.too_many()
            if time.monotonic() > deadline:
                raise limits.too_slow()


def union(matchers: Sequence[Matcher], memory: int = MEMORY) -> Regex:
    """Return a pattern that finds the first match of any of the patterns in a text with a sentinel.

    The match may be certain, or reach the end of the text; see `detection.detectors.patterns.partial`.

    Args:
        matchers: The patterns.
        memory: The memory limit in bytes. RE2 is fifty times slower if its automaton exceeds the limit.
    """
    return Regex("|".join(f"(?:{matcher.partial_expression})" for matcher in matchers), memory=memory)


def following(text: bytes, position: int) -> int:
    """Return the start of the next character after the character at ``position``."""
    position += 1
    while position < len(text) and text[position] & 0xC0 == 0x80:
        position += 1
    return position


def preceding(text: bytes, position: int) -> int:
    """Return the start of the character before ``position``; 0 at the beginning."""
    return boundary(text, position - 1)


def boundary(text: bytes, position: int) -> int:
    """Return the start of the character that contains the byte at ``position``; 0 before the beginning."""
    position = max(position, 0)
    while position and text[position] & 0xC0 == 0x80:
        position -= 1
    return position
