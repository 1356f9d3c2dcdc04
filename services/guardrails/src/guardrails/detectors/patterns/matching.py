"""One pattern at work: its matches in a text that is complete, or in one that may go on."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from guardrails.detectors.patterns.engine import Regex
from guardrails.detectors.patterns.partial import partial
from guardrails.detectors.patterns.view import canonical
from guardrails.detectors.port import DetectorFailed

# Bytes that RE2 may take for a pattern's program and automata.
_MEMORY = 4 * 1024 * 1024
MEMORY = 2 * _MEMORY
"""Bytes for a few patterns together."""
MUCH_MEMORY = 8 * MEMORY
"""Bytes for many patterns together; for detectors that are made once."""

Accept = Callable[[bytes, int, int], bool]
"""Looks at a match in its text: is it a detection?"""


@dataclass(frozen=True, slots=True)
class Pattern:
    """What to look for.

    Attributes:
        type: Kind of detection, for example ``pii``.
        name: What is detected, for example ``email_address``.
        expression: In RE2's syntax.
        accept: A check beyond regular languages. Where it refuses a match, the search goes on one character
            further, so that a refused match hides none that overlaps it.
        grouped: The first group of the expression is the detection; what follows the group is only looked at.
        overlapping: After a match the search goes on one character further, too, instead of behind it.
        behind: Bytes before a match that ``accept`` may look at.
        foreign: A caller's own, which may be costly on purpose.
    """

    type: str
    name: str
    expression: str
    accept: Accept | None = None
    grouped: bool = False
    overlapping: bool = False
    behind: int = 1
    foreign: bool = False


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one detector's work on one text; beyond each the detector fails.

    Attributes:
        held: Code points of a growing text that are held back.
        detections: Detections of one pattern in a text, or in one piece of it.
        seconds: Time for a text, or for one piece of it.
    """

    held: int = 8192
    detections: int = 10_000
    seconds: float = 1.0

    def too_long(self) -> DetectorFailed:
        """The failure of a detector that would hold too much."""
        return DetectorFailed(f"more than {self.held} characters would have to be held back")

    def too_slow(self) -> DetectorFailed:
        """The failure of a detector whose time is over."""
        return DetectorFailed(f"the detector took longer than {self.seconds:g} s")

    def too_many(self) -> DetectorFailed:
        """The failure of a detector that finds too much."""
        return DetectorFailed(f"the detector found more than {self.detections} spans")


class Matcher:
    """A compiled pattern.

    Attributes:
        pattern: What it looks for.
        partial_expression: What finds it in a text with the `SENTINEL`.
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
        self.size = self._whole.size

    @cached_property
    def _partial(self) -> Regex:
        return Regex(self.partial_expression, memory=_MEMORY)

    def matches_nothing(self) -> bool:
        """Whether the pattern matches the empty text somewhere, so that its matches say nothing."""
        return self._whole.matches_nothing()

    def scan(
        self, text: bytes, start: int, end: int, limits: Limits, deadline: float
    ) -> tuple[list[tuple[int, int]], int]:
        """The matches from ``start`` on that no further text can change, and where the undecided rest begins.

        Args:
            text: UTF-8; complete, or with the `SENTINEL` at its end.
            start: Where the last scan of the text ended.
            end: Where the text ends, without the sentinel.
            limits: What a scan may find.
            deadline: When it must be done, on the monotonic clock.

        Raises:
            DetectorFailed: A limit was reached.
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
    """What finds the first place where any of the patterns matches or may match in a text with a sentinel.

    Args:
        matchers: The patterns.
        memory: Bytes that it may take. RE2 is fifty times slower where its automaton does not fit.
    """
    return Regex("|".join(f"(?:{matcher.partial_expression})" for matcher in matchers), memory=memory)


def following(text: bytes, position: int) -> int:
    """Where the character after the one at ``position`` begins."""
    position += 1
    while position < len(text) and text[position] & 0xC0 == 0x80:
        position += 1
    return position


def preceding(text: bytes, position: int) -> int:
    """Where the character before ``position`` begins; 0 at the beginning."""
    return boundary(text, position - 1)


def boundary(text: bytes, position: int) -> int:
    """Where the character that has the byte at ``position`` begins; 0 before the beginning."""
    position = max(position, 0)
    while position and text[position] & 0xC0 == 0x80:
        position -= 1
    return position
