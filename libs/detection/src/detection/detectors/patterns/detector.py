"""The detector that searches for patterns, in whole and in growing texts."""

import time
from collections.abc import Sequence
from dataclasses import replace

from detection.detectors.patterns.engine import Regex
from detection.detectors.patterns.matching import MEMORY, Limits, Matcher, union
from detection.detectors.patterns.search import Search, span_of
from detection.detectors.patterns.view import View, is_plain
from detection.detectors.port import DetectorStream
from detection.domain import Detection

# The maximum length, in code points, of a text that the event loop may search. With the named patterns, the search
# takes at most 7 ms, even on adversarial texts.
_MAX_INLINE_LENGTH = 16_384
# For callers' patterns, the maximum product of RE2's instructions and the length. RE2 takes up to 8 ns for each
# instruction and character. A search in a growing text has three to four times as many instructions, and may run on
# the text and on its view.
_MAX_INLINE_WORK = 2_500_000
# The detector scans whole texts in slices, and checks the time limit after each slice.
_SLICE = 65_536


class PatternDetector:
    """Finds the matches of several patterns.

    Args:
        matchers: The patterns.
        limits: The limits for one text.
        memory: The memory limit in bytes of the combined pattern; see `union`.
        with_view: Whether to also search the view of the text as people read it; see
            `detection.detectors.patterns.view`.

    Raises:
        Unsupported: The patterns together are too large.
    """

    def __init__(
        self, matchers: Sequence[Matcher], limits: Limits, memory: int = MEMORY, *, with_view: bool = True
    ) -> None:
        self._matchers = matchers
        self._union = union(matchers, memory)
        self._limits = limits
        self._with_view = with_view
        custom_size = sum(matcher.size for matcher in matchers if matcher.pattern.custom)
        self.inline_limit = (
            min(_MAX_INLINE_LENGTH, _MAX_INLINE_WORK // custom_size) if custom_size else _MAX_INLINE_LENGTH
        )

    def detect(self, text: str) -> list[Detection]:
        """See `Detector.detect`."""
        limits = Limits(len(text), self._limits.detections, self._limits.seconds)
        stream = PatternStream(self._matchers, self._union, limits, with_view=self._with_view)
        deadline = time.monotonic() + limits.seconds
        found: list[Detection] = []
        for start in range(0, max(len(text), 1), _SLICE):
            end = start + _SLICE
            found += stream.feed(text[start:end], end >= len(text))[1]
            if len(found) > limits.detections:
                raise limits.too_many()
            if time.monotonic() > deadline:
                raise limits.too_slow()
        found.sort(key=span_of)
        return found

    def stream(self) -> DetectorStream:
        """See `Detector.stream`."""
        return PatternStream(self._matchers, self._union, self._limits, with_view=self._with_view)


class PatternStream:
    """Searches a growing text and, while its view differs, also the view.

    The view is the text as people read it; see `detection.detectors.patterns.view`. While both are equal, the
    stream searches only the text. A match that both searches find counts once.
    """

    def __init__(self, matchers: Sequence[Matcher], any_pattern: Regex, limits: Limits, *, with_view: bool) -> None:
        self._search = Search(matchers, any_pattern, limits)
        self._limits = limits
        self._with_view = with_view
        self._view_search: _ViewSearch | None = None

    def feed(self, text: str, last: bool) -> tuple[int, list[Detection]]:
        """See `DetectorStream.feed`."""
        search = self._search
        if self._view_search is None:
            if not self._with_view or text.isascii() or is_plain(text):
                detections = search.feed(text, last)
                return search.decided, detections
            self._view_search = _ViewSearch(search)
        view_search = self._view_search
        if not last and search.length - view_search.decided > self._limits.held_back:
            raise self._limits.too_long()
        detections = view_search.feed(text, last, search.feed(text, last))
        decided = min(search.decided, view_search.decided)
        if view_search.is_over(search):
            self._view_search = None
        return decided, detections


class _ViewSearch:
    """The search of a text's view, from the position where the view differs from the text.

    Args:
        search: The search of the text.
    """

    def __init__(self, search: Search) -> None:
        self._search = search.copy()
        # The part of the text in which a later detection may begin: its position in code points, and its content.
        self._first, self._text = search.retained
        self._view = View(self._text[-1:], search.length)
        # How often the search of the text and the search of the view have found each detection.
        self._counts: dict[Detection, list[int]] = {}

    @property
    def decided(self) -> int:
        """The number of decided code points of the text."""
        return self._view.start(self._search.decided)

    def feed(self, text: str, last: bool, text_detections: Sequence[Detection]) -> list[Detection]:
        """Search the view of the next piece; return the new detections of both searches.

        Args:
            text: The next piece of the text.
            last: Whether it is the last piece.
            text_detections: The detections that the search of the text has found with this piece.
        """
        self._text += text
        found = [self._in_text(detection) for detection in self._search.feed(self._view.feed(text), last)]
        new = [*self._unreported(text_detections, 0), *self._unreported(found, 1)]
        new.sort(key=span_of)
        self._view.forget(self._search.decided)
        first = self.decided
        self._text = self._text[first - self._first :]
        self._first = first
        return new

    def is_over(self, search: Search) -> bool:
        """Return whether both searches will find the same matches in further text; remove old counts."""
        decided = min(search.decided, self.decided)
        self._counts = {
            detection: counts for detection, counts in self._counts.items() if span_of(detection)[0] >= decided
        }
        if not search.continues_like(self._search):
            return False
        return self._view.is_same_from(self._view.length - len(search.retained[1]))

    def _in_text(self, detection: Detection) -> Detection:
        start, end = span_of(detection)
        start, end = self._view.start(start), self._view.end(end)
        return replace(detection, text=self._text[start - self._first : end - self._first], start=start, end=end)

    def _unreported(self, found: Sequence[Detection], search_index: int) -> list[Detection]:
        """Return the detections that this search has found more often than the other search."""
        new = []
        for detection in found:
            counts = self._counts.setdefault(detection, [0, 0])
            counts[search_index] += 1
            if counts[search_index] > counts[1 - search_index]:
                new.append(detection)
        return new
