"""Where growing texts are cut, for detectors that judge windows and for callers that want sentences."""

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from text.sentences import SentenceSplitter


class Chunking(Enum):
    """What a chunk is; the values are the ecosystem's names."""

    SENTENCE = "sentence"
    WHOLE = "whole_doc"

    def chunker(self) -> "Chunker":
        """Cuts one text."""
        return Sentences() if self is Chunking.SENTENCE else Whole()


class Chunker(Protocol):
    """Cuts one growing text."""

    def feed(self, text: str, last: bool) -> list[int]:
        """Where chunks end that are certain now, in code points from the text's beginning, ascending.

        However a text is cut into pieces, its chunks are the same, and together they are the text. With the last
        piece its end is one, unless the text is empty. A chunker elsewhere says it later, in answer to pieces of
        nothing.

        Raises:
            Exception: It cannot be cut.
        """
        ...

    @property
    def waiting(self) -> int:
        """Code points that it has not looked at yet."""
        ...

    def close(self) -> None:
        """Nothing more will be asked of it."""
        ...


class Sentences(SentenceSplitter):
    """One chunk for each sentence, with the white space before it."""

    waiting = 0

    def close(self) -> None:
        """See `Chunker.close`."""


class Whole:
    """One chunk: the text."""

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
    """A chunk that a detector judges; ``start`` is its first code point in the text."""

    start: int
    text: str


class TooLong(Exception):
    """A window has more code points than may be held."""


class Windows:
    """The windows of one growing text.

    Args:
        chunker: Cuts them.
        limit: Code points that an open window may have.

    Attributes:
        complete: The text is complete, and so are its windows.
    """

    def __init__(self, chunker: Chunker, limit: int) -> None:
        self._chunker = chunker
        self._limit = limit
        self._last = False
        self._open: list[str] = []
        self._start = 0
        self._size = 0

    @property
    def complete(self) -> bool:  # noqa: D102  # see the class
        return self._last and not self._size

    @property
    def waiting(self) -> int:
        """Code points that the chunker has not looked at yet."""
        return self._chunker.waiting

    def close(self) -> None:
        """Stops the chunker."""
        self._chunker.close()

    def feed(self, text: str, last: bool) -> list[Window]:
        """The windows that are complete now.

        Raises:
            TooLong: The one that is not complete is longer than the limit.
            Exception: See `Chunker.feed`.
        """
        self._last = self._last or last
        self._size += len(text)
        if text:
            self._open.append(text)
        ends = self._chunker.feed(text, last)
        windows = []
        if ends:
            held = "".join(self._open)
            begin = self._start
            for end in ends:
                windows.append(Window(self._start, held[self._start - begin : end - begin]))
                self._start = end
            rest = held[self._start - begin :]
            self._open, self._size = [rest], len(rest)
        if self._size - self._chunker.waiting > self._limit or any(
            len(window.text) > self._limit for window in windows
        ):
            raise TooLong
        return windows


def windows_of(text: str, chunking: Chunking) -> list[Window]:
    """The windows of a whole text."""
    return Windows(chunking.chunker(), len(text)).feed(text, last=True)
