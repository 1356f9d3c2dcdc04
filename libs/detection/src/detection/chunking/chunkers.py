"""Chunkers split growing texts for detectors that judge windows, and for callers that request sentences."""

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from text.sentences import SentenceSplitter


class Chunking(Enum):
    """The kind of chunk; the values are the names of the detector API."""

    SENTENCE = "sentence"
    WHOLE = "whole_doc"

    def chunker(self) -> "Chunker":
        """Return a chunker for one text."""
        return Sentences() if self is Chunking.SENTENCE else Whole()


class Chunker(Protocol):
    """Splits one growing text."""

    def feed(self, text: str, last: bool) -> list[int]:
        """Return the newly certain ends of chunks, ascending, in code points from the start of the text.

        The chunks do not depend on the division of the text into pieces. Their concatenation is the text. With the
        last piece, the end of a text that is not empty is the end of a chunk. A remote chunker may return ends
        later, for empty pieces.

        Raises:
            Exception: The text cannot be split.
        """
        ...

    @property
    def waiting(self) -> int:
        """The number of code points that the chunker has not processed yet."""
        ...

    def close(self) -> None:
        """Stop the chunker; no further call follows."""
        ...


class Sentences(SentenceSplitter):
    """Splits into sentences; a chunk begins with the white space before its sentence."""

    waiting = 0

    def close(self) -> None:
        """See `Chunker.close`."""


class Whole:
    """Returns the whole text as one chunk."""

    waiting = 0

    def __init__(self) -> None:
        self._length = 0

    def close(self) -> None:
        """See `Chunker.close`."""

    def feed(self, text: str, last: bool) -> list[int]:
        """See `Chunker.feed`."""
        self._length += len(text)
        return [self._length] if last and self._length else []


@dataclass(frozen=True, slots=True)
class Window:
    """A chunk for a detector; ``start`` is the position of its first code point in the text."""

    start: int
    text: str


class TooLong(Exception):
    """A window has more code points than the limit allows."""


class Windows:
    """The windows of one growing text.

    Args:
        chunker: Splits the text.
        limit: The maximum number of code points of a window.

    Attributes:
        complete: The last piece has arrived, and the windows cover the whole text.
    """

    def __init__(self, chunker: Chunker, limit: int) -> None:
        self._chunker = chunker
        self._limit = limit
        self._last = False
        self._pieces: list[str] = []  # the text of the open window
        self._start = 0  # its start in the text
        self._size = 0  # its number of code points

    @property
    def complete(self) -> bool:  # noqa: D102  # see the class
        return self._last and not self._size

    @property
    def waiting(self) -> int:
        """The number of code points that the chunker has not processed yet."""
        return self._chunker.waiting

    def close(self) -> None:
        """Stop the chunker."""
        self._chunker.close()

    def feed(self, text: str, last: bool) -> list[Window]:
        """Return the windows that are now complete.

        Raises:
            TooLong: A complete window or the open window is longer than the limit.
            Exception: See `Chunker.feed`.
        """
        self._last = self._last or last
        self._size += len(text)
        if text:
            self._pieces.append(text)
        ends = self._chunker.feed(text, last)
        windows = []
        if ends:
            buffered = "".join(self._pieces)
            begin = self._start
            for end in ends:
                windows.append(Window(self._start, buffered[self._start - begin : end - begin]))
                self._start = end
            rest = buffered[self._start - begin :]
            self._pieces, self._size = [rest], len(rest)
        if self._size - self._chunker.waiting > self._limit or any(
            len(window.text) > self._limit for window in windows
        ):
            raise TooLong
        return windows


def windows_of(text: str, chunking: Chunking) -> list[Window]:
    """Return the windows of a whole text."""
    return Windows(chunking.chunker(), len(text)).feed(text, last=True)
