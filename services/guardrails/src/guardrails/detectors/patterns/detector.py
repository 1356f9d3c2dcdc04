"""Detectors made of patterns, on whole and on growing texts."""

import time
from collections.abc import Sequence

from guardrails.detectors.patterns.engine import Regex
from guardrails.detectors.patterns.matching import MEMORY, Limits, Matcher, preceding, union
from guardrails.detectors.patterns.partial import SENTINEL
from guardrails.detectors.port import DetectorFailed, DetectorStream
from guardrails.domain import Detection

# At most 7 ms with the named patterns, on texts made to be slow.
_INLINE = 16_384
# The same for callers' patterns: instructions times characters. RE2 takes 8 ns for each at worst, and searches in
# growing texts have three to four times the instructions.
_INLINE_WORK = 5_000_000
# Whole texts are scanned in slices, so that the time limit is looked at in between.
_SLICE = 65_536
# Bytes that one pattern may hold before the others are asked by themselves what they have found meanwhile.
_PROMPT = 512


class PatternDetector:
    """Finds what any of its patterns matches.

    Args:
        matchers: The patterns.
        limits: Bounds of the work on one text.
        memory: Bytes that finding any of them may take; see `union`.

    Raises:
        Unsupported: The patterns are too large together.
    """

    def __init__(self, matchers: Sequence[Matcher], limits: Limits, memory: int = MEMORY) -> None:
        self._matchers = matchers
        self._any = union(matchers, memory)
        self._limits = limits
        foreign = sum(matcher.size for matcher in matchers if matcher.pattern.foreign)
        self.inline_limit = min(_INLINE, _INLINE_WORK // foreign) if foreign else _INLINE

    def detect(self, text: str) -> list[Detection]:
        """See `Detector.detect`."""
        limits = Limits(len(text), self._limits.detections, self._limits.seconds)
        stream = PatternStream(self._matchers, self._any, limits)
        deadline = time.monotonic() + limits.seconds
        found: list[Detection] = []
        for start in range(0, max(len(text), 1), _SLICE):
            end = start + _SLICE
            found += stream.feed(text[start:end], end >= len(text))[1]
            if len(found) > limits.detections:
                raise limits.too_many()
            if time.monotonic() > deadline:
                raise limits.too_slow()
        found.sort(key=_place)
        return found

    def stream(self) -> DetectorStream:
        """See `Detector.stream`."""
        return PatternStream(self._matchers, self._any, self._limits)


class PatternStream:
    """A growing text under several patterns, with as little of it held back as is safe.

    Held back is the text from the first character at which, for some pattern, the preferred match of the whole text
    may begin that is not certain yet: because the match is not complete, because it may grow, or because it depends
    on the character after it. All that comes before is decided. Checks beyond the expression (a card number's check
    digit) are made when a match is certain; until then its text is held.

    A piece costs one search of the new and the held text, by all patterns in one. Only where that search finds a
    certain match do the patterns search by themselves.
    """

    def __init__(self, matchers: Sequence[Matcher], any_pattern: Regex, limits: Limits) -> None:
        self._matchers = matchers
        self._any = any_pattern
        self._limits = limits
        self._seconds = limits.seconds
        self._text = b""  # one decided character, which \b and ^ may look at, and the undecided rest
        self._base = 0  # bytes before `_text`
        self._origin = 0  # code points before `_text`
        self._length = 0  # code points so far
        self._decided = 0  # code points
        self._start = 0  # byte of the whole text before which no pattern has anything left to find
        self._starts: tuple[int, ...] = (0,) * len(matchers)  # the same for each pattern, where that is further

    def feed(self, text: str, last: bool) -> tuple[int, list[Detection]]:
        """See `DetectorStream.feed`."""
        if not last and self._length - self._decided > self._limits.held:
            raise DetectorFailed(f"more than {self._limits.held} characters would have to be held back")
        deadline = time.monotonic() + self._seconds
        data = self._text + text.encode()
        end = len(data)
        self._length += len(text)
        detections: list[Detection] = []
        if last:
            self._scan(data, end, deadline, detections)
            self._decided = self._length
            return self._length, detections
        data += SENTINEL
        begin, stop = self._any.search(data, self._start - self._base)
        if stop > end and end - begin <= _PROMPT:
            begin = min(begin, end)  # nothing begins at the end, either
            self._start = self._base + begin
        else:
            self._scan(data, end, deadline, detections)
            begin = self._start - self._base
        self._decided = self._length if begin == end else self._length - _length(data[begin:end])
        kept = preceding(data, begin)
        self._origin = self._decided - (1 if kept < begin else 0)
        self._base += kept
        self._text = data[kept:end]
        if time.monotonic() > deadline:
            raise self._limits.too_slow()
        return self._decided, detections

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
        detections.sort(key=_place)


def _length(text: bytes) -> int:
    return len(text) if text.isascii() else len(text.decode())


def _place(detection: Detection) -> tuple[int, int]:
    assert detection.start is not None
    assert detection.end is not None
    return detection.start, detection.end
