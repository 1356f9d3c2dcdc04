"""Cuts an answer at a stop sequence, even if the sequence is split over several pieces."""

from collections.abc import Sequence


class StopCutter:
    """Passes text on up to the first stop sequence, and holds back text that may begin a stop sequence.

    The first stop sequence is the sequence that ends first. If several end at the same place, the longest one
    counts.

    Attributes:
        stopped: The text contained a stop sequence; no more text follows.

    >>> cutter = StopCutter(["END"])
    >>> [cutter.feed(piece) for piece in ("an EN", "tire ", "END of")]
    ['an ', 'ENtire ', '']
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._max_length = max(map(len, self._stops), default=0)
        self._held_back = ""
        self.stopped = False

    def feed(self, piece: str) -> str:
        """Add a piece; return the text that cannot belong to a stop sequence."""
        if self.stopped or not self._max_length:
            return "" if self.stopped else piece
        text = self._held_back + piece
        found = [(start + len(stop), start) for stop in self._stops if (start := text.find(stop)) >= 0]
        if found:
            self.stopped, self._held_back = True, ""
            return text[: min(found)[1]]
        length = self._partial_length(text)
        self._held_back = text[len(text) - length :]
        return text[: len(text) - length]

    def close(self) -> str:
        """Return the text that is still held back at the end of the answer."""
        held, self._held_back = self._held_back, ""
        return held

    def _partial_length(self, text: str) -> int:
        """Return the length of the longest suffix of the text that begins a stop sequence."""
        for length in range(min(len(text), self._max_length - 1), 0, -1):
            end = text[-length:]
            if any(stop.startswith(end) for stop in self._stops):
                return length
        return 0
