"""The search of one growing text for several patterns."""

import time
from collections.abc import Sequence

from guardrails.detectors.patterns.engine import Regex
from guardrails.detectors.patterns.matching import Limits, Matcher, boundary
from guardrails.detectors.patterns.partial import SENTINEL
from guardrails.domain import Detection

# Bytes that one pattern may hold before the others are asked by themselves what they have found meanwhile.
_PROMPT = 512


class Search:
    """A growing text under several patterns, with as little of it held back as is safe.

    Held back is the text from the first character at which, for some pattern, the preferred match of the whole text
    may begin that is not certain yet: because the match is not complete, because it may grow, or because it depends
    on the character after it. All that comes before is decided. Checks beyond the expression (a card number's check
    digit) are made when a match is certain; until then its text is held.

    A piece costs one search of the new and the held text, by all patterns in one. Only where that search finds a
    certain match do the patterns search by themselves.

    Args:
        matchers: The patterns.
        any_pattern: Their `union`.
        limits: Bounds of the work.

    Attributes:
        length: Code points so far.
        decided: Code points that are decided.
    """

    def __init__(self, matchers: Sequence[Matcher], any_pattern: Regex, limits: Limits) -> None:
        self.length = 0
        self.decided = 0
        self._matchers = matchers
        self._any = any_pattern
        self._limits = limits
        self._behind = max((matcher.pattern.behind for matcher in matchers), default=1)
        self._text = b""  # decided text that patterns may look at, and the undecided rest
        self._base = 0  # bytes before `_text`
        self._origin = 0  # code points before `_text`
        self._start = 0  # byte of the whole text before which no pattern has anything left to find
        self._starts: tuple[int, ...] = (0,) * len(matchers)  # the same for each pattern, where that is further

    @property
    def kept(self) -> tuple[int, str]:
        """Where the text that is kept begins, in code points, and the text."""
        return self._origin, self._text.decode()

    def copy(self) -> "Search":
        """Return a search that goes on from here by itself."""
        twin = Search.__new__(Search)
        twin.__dict__.update(self.__dict__)  # all that changes is replaced, never changed in place
        return twin

    def goes_on_like(self, other: "Search") -> bool:
        """Return whether both find the same in all text that follows."""
        return self._text == other._text and self._places() == other._places()

    def _places(self) -> tuple[int, ...]:
        end = self._base + len(self._text)
        return tuple(end - max(start, self._start) for start in self._starts)

    def feed(self, text: str, last: bool) -> list[Detection]:
        """Take the next piece; see `DetectorStream.feed`."""
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
            begin = min(begin, end)  # nothing begins at the end, either
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
    """Return where a detection is, to sort by."""
    assert detection.start is not None
    assert detection.end is not None
    return detection.start, detection.end
