"""The search for several patterns in one growing text."""

import time
from collections.abc import Sequence

from detection.detectors.patterns.engine import Regex
from detection.detectors.patterns.matching import Limits, Matcher, boundary
from detection.detectors.patterns.partial import SENTINEL
from detection.domain import Detection

# If one pattern holds back more bytes than this, the other patterns are searched on their own.
_PROMPT = 512


class Search:
    """Searches one growing text for several patterns, and holds back as little text as possible.

    A match is uncertain if it is incomplete, may grow, or depends on the next character. The text is held back from
    the first character at which the preferred match of a pattern may begin and is uncertain. The text before it is
    decided. Checks beyond the expression (a card number's check digit) run when a match is certain; until then its
    text is held back.

    Each piece takes one search of the new and the held-back text for all patterns together. The patterns are
    searched one by one only if that search finds a certain match.

    Args:
        matchers: The patterns.
        any_pattern: Their `union`.
        limits: The limits of the search.

    Attributes:
        length: Code points so far.
        decided: Decided code points.
    """

    def __init__(self, matchers: Sequence[Matcher], any_pattern: Regex, limits: Limits) -> None:
        self.length = 0
        self.decided = 0
        self._matchers = matchers
        self._any = any_pattern
        self._limits = limits
        self._behind = max((matcher.pattern.behind for matcher in matchers), default=1)
        self._text = b""  # the decided text that patterns may still look at, and the undecided rest
        self._base = 0  # bytes before `_text`
        self._origin = 0  # code points before `_text`
        self._start = 0  # byte position in the whole text before which all patterns are done
        self._starts: tuple[int, ...] = (0,) * len(matchers)  # the same for each pattern, if it is further

    @property
    def kept(self) -> tuple[int, str]:
        """The position of the kept text in code points, and the text."""
        return self._origin, self._text.decode()

    def copy(self) -> "Search":
        """Return an independent copy."""
        twin = Search.__new__(Search)
        twin.__dict__.update(self.__dict__)  # values are replaced and never changed in place
        return twin

    def goes_on_like(self, other: "Search") -> bool:
        """Return whether both searches will find the same in the text that follows."""
        return self._text == other._text and self._places() == other._places()

    def _places(self) -> tuple[int, ...]:
        end = self._base + len(self._text)
        return tuple(end - max(start, self._start) for start in self._starts)

    def feed(self, text: str, last: bool) -> list[Detection]:
        """Search the next piece; see `DetectorStream.feed`."""
        limits = self._limits
        if not last and self.length - self.decided > limits.held:
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
        begin, stop = self._any.search(data, self._start - self._base)
        if stop > end and end - begin <= _PROMPT:
            begin = min(begin, end)  # a match cannot begin at the end
            self._start = self._base + begin
        else:
            self._scan(data, end, deadline, detections)
            begin = self._start - self._base
        self.decided = self.length if begin == end else self.length - _length(data[begin:end])
        kept = boundary(data, begin - self._behind)
        self._origin = self.decided - _length(data[kept:begin])
        self._base += kept
        self._text = data[kept:end]
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
        detections.sort(key=place)


def _length(text: bytes) -> int:
    return len(text) if text.isascii() else len(text.decode())


def place(detection: Detection) -> tuple[int, int]:
    """Return the span of a detection as a sort key."""
    assert detection.start is not None
    assert detection.end is not None
    return detection.start, detection.end
