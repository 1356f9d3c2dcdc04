"""The entries of a response's log, which contain the released events in the order in which clients receive them."""

from collections.abc import Iterator
from dataclasses import dataclass

_END = b"\n\n"


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a log: the events that one write appended.

    Attributes:
        writer: The name of the attempt that wrote the entry. Each attempt to answer has a different name.
        first: The number of the first event.
        data: The complete events, as clients receive them. Empty if the entry only announces a new writer or the
            deletion of the log, or if `lacks_event`.
        last: The number of the last event, or ``first - 1`` without events.
        ended: Whether no entry follows.
        deleted: Whether the log was deleted. This entry is then its only entry.
        position: The position in the log, which grows with each entry, or 0 before the write.
        before: The position of the previous entry, or 0 for the first entry and an unknown position.
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
        """Return whether the last event was too large for the entry. The stored response contains its content."""
        return self.ended and not self.data and self.last >= self.first

    def equals_except_position(self, other: "Entry") -> bool:
        """Return whether the entries are equal apart from their positions."""
        mine = (self.writer, self.first, self.last, self.ended, self.deleted, self.data)
        return mine == (other.writer, other.first, other.last, other.ended, other.deleted, other.data)

    def after(self, number: int) -> bytes:
        """Return the bytes of the events after the event with this number."""
        if number < self.first:
            return self.data
        return b"".join(event for at, event in self.events() if at > number)

    def events(self) -> Iterator[tuple[int, bytes]]:
        """Yield the events, each with its number."""
        pieces = self.data.split(_END)[:-1]
        return ((self.first + at, piece + _END) for at, piece in enumerate(pieces))
