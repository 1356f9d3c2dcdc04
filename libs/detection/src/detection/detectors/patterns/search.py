"""Searches a text that arrives in pieces for several patterns."""

import time
from collections.abc import Sequence

from detection.detectors.patterns.engine import Regex
from detection.detectors.patterns.matching import Limits, Matcher, boundary
from detection.detectors.patterns.partial import SENTINEL
from detection.domain import Detection

# If the combined search would hold back more bytes than this, a separate search for each pattern follows, because
# separate searches may hold back less.
_MAX_PENDING_BYTES = 512


class Search:
    """Searches one growing text for several patterns, and holds back as little text as possible.

    A match is uncertain if it is incomplete, may grow, or depends on the next character. The search holds back the
    text from the first character of an uncertain match on. The text before this character is decided. Further
    checks (for example of a card number's check digit) run when a match is certain. Until then, its text is held
    back.

    Each piece causes one search of the held-back and the new text for all patterns together. Separate searches for
    each pattern follow if this search finds a certain match, or would hold back more than 512 bytes.

    Args:
        matchers: The patterns.
        any_pattern: The combined expression, which matches where any of the patterns matches (see `union`).
        limits: The limits of held-back text, detections and time.

    Attributes:
        length: The number of code points so far.
        decided: The number of decided code points.
    """

    def __init__(self, matchers: Sequence[Matcher], any_pattern: Regex, limits: Limits) -> None:
        self.length = 0
        self.decided = 0
        self._matchers = matchers
        self._union = any_pattern
        self._limits = limits
        self._behind = max((matcher.pattern.behind for matcher in matchers), default=1)  # bytes before a match
        self._text = b""  # the decided text that patterns may still read, and the undecided text
        self._base = 0  # the number of bytes before `_text`
        self._origin = 0  # the number of code points before `_text`
        self._start = 0  # the byte position in the whole text from which all patterns continue
        # The position from which each pattern continues, if it is greater than `_start`.
        self._starts: tuple[int, ...] = (0,) * len(matchers)

    @property
    def retained(self) -> tuple[int, str]:
        """The text that later searches may still read: its position in code points, and its content."""
        return self._origin, self._text.decode()

    def copy(self) -> "Search":
        """Return an independent copy."""
        duplicate = Search.__new__(Search)
        duplicate.__dict__.update(self.__dict__)  # values are replaced and never changed in place
        return duplicate

    def continues_like(self, other: "Search") -> bool:
        """Return whether both searches find the same matches in the same further text."""
        return self._text == other._text and self._distances() == other._distances()

    def _distances(self) -> tuple[int, ...]:
        """Return the number of bytes from the position of each pattern to the end of the text."""
        end = self._base + len(self._text)
        return tuple(end - max(start, self._start) for start in self._starts)

    def feed(self, text: str, last: bool) -> list[Detection]:
        """Search the next piece, and return the new certain matches; see `DetectorStream.feed`."""
        limits = self._limits
        if not last and self.length - self.decided > limits.held_back:
            raise limits.too_long()
        deadline = time.monotonic() + limits.seconds
        data = self._text + text.encode()
        end = len(data)
        self.length += len(text)
        detections: list[Detection] = []
        if last:
            self._scan(data, end, deadline, detections)
            self.decided = self.length
            return detections
        data += SENTINEL
        begin, stop = self._union.search(data, self._start - self._base)
        if stop > end and end - begin <= _MAX_PENDING_BYTES:
            begin = min(begin, end)  # a match cannot begin after the end
            self._start = self._base + begin
        else:
            self._scan(data, end, deadline, detections)
            begin = self._start - self._base
        self.decided = self.length if begin == end else self.length - _length(data[begin:end])
        retained_from = boundary(data, begin - self._behind)
        self._origin = self.decided - _length(data[retained_from:begin])
        self._base += retained_from
        self._text = data[retained_from:end]
        if time.monotonic() > deadline:
            raise limits.too_slow()
        return detections

    def _scan(self, data: bytes, end: int, deadline: float, detections: list[Detection]) -> None:
        base, starts = self._base, []
        for matcher, start in zip(self._matchers, self._starts, strict=True):
            spans, rest = matcher.scan(data, max(start, self._start) - base, end, self._limits, deadline)
            starts.append(base + rest)
            byte, first = 0, self._origin
            for begin, stop in spans:
                byte, first = begin, first + _length(data[byte:begin])
                matched = data[begin:stop].decode()
                detections.append(
                    Detection(matcher.pattern.type, matcher.pattern.name, matched, first, first + len(matched))
                )
        self._starts = tuple(starts)
        self._start = min(starts)
        detections.sort(key=span_of)


def _length(text: bytes) -> int:
    return len(text) if text.isascii() else len(text.decode())


def span_of(detection: Detection) -> tuple[int, int]:
    """Return the start and end of a detection in code points, as a sort key."""
    assert detection.start is not None
    assert detection.end is not None
    return detection.start, detection.end
