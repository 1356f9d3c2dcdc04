"""The log of a response: its released events, in the order in which clients get them."""

from collections.abc import Iterator
from dataclasses import dataclass

_END = b"\n\n"


@dataclass(frozen=True, slots=True)
class Entry:
    """What was written to a log at once.

    Attributes:
        writer: Who wrote it; each attempt to answer has a name of its own.
        first: Number of its first event.
        data: Its events as clients get them, whole ones; empty where an entry only says who writes from now on.
        last: Number of its last event; one less than ``first`` where it has none.
        ended: Nothing follows.
        deleted: The log was deleted; then it has no other entry.
        position: Where it is in the log; it grows from entry to entry. 0 before it is written.
        before: The position of the entry before it; 0 where it is the first or that is not known.
    """

    writer: str
    first: int = 0
    last: int = -1
    data: bytes = b""
    ended: bool = False
    deleted: bool = False
    position: int = 0
    before: int = 0

    @property
    def lacks_event(self) -> bool:
        """Whether it has a number for the last event, which was too large: it follows from what is stored."""
        return self.ended and not self.data and self.last >= self.first

    def same(self, other: "Entry") -> bool:
        """Return whether the other one is this one, wherever they are."""
        mine = (self.writer, self.first, self.last, self.ended, self.deleted, self.data)
        return mine == (other.writer, other.first, other.last, other.ended, other.deleted, other.data)

    def after(self, number: int) -> bytes:
        """Return the bytes of its events behind the event of a number."""
        if number < self.first:
            return self.data
        return b"".join(event for at, event in self.events() if at > number)

    def events(self) -> Iterator[tuple[int, bytes]]:
        """Its events, each with its number."""
        pieces = self.data.split(_END)[:-1]
        return ((self.first + at, piece + _END) for at, piece in enumerate(pieces))
