"""Ending an answer at a stop sequence, wherever its pieces cut it."""

from collections.abc import Sequence


class StopCutter:
    """Lets text through up to the first stop sequence, and holds back what may be the beginning of one.

    The first is the one that is complete first; of several that end together the longest.

    Attributes:
        stopped: One was there; nothing more comes.

    >>> cutter = StopCutter(["END"])
    >>> [cutter.feed(piece) for piece in ("an EN", "tire ", "END of")]
    ['an ', 'ENtire ', '']
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._longest = max(map(len, self._stops), default=0)
        self._held = ""
        self.stopped = False

    def feed(self, piece: str) -> str:
        """What can be said for certain, with this piece."""
        if self.stopped or not self._longest:
            return "" if self.stopped else piece
        text = self._held + piece
        found = [(at + len(stop), at) for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            self.stopped, self._held = True, ""
            return text[: min(found)[1]]
        begun = self._begun(text)
        self._held = text[len(text) - begun :]
        return text[: len(text) - begun]

    def close(self) -> str:
        """What was held back, at the end of the text."""
        held, self._held = self._held, ""
        return held

    def _begun(self, text: str) -> int:
        """Length of the longest end of the text that a stop sequence begins with."""
        for length in range(min(len(text), self._longest - 1), 0, -1):
            end = text[-length:]
            if any(stop.startswith(end) for stop in self._stops):
                return length
        return 0
