"""The position of one reader in the log of a response."""

from collections.abc import Sequence
from dataclasses import dataclass

from servicekit.errors import InvalidRequest, NotFound

from gateway.domain.response_log import Entry


@dataclass(slots=True)
class Cursor:
    """The position of one reader.

    Attributes:
        name: The id of the response.
        after: Number of the last event that was sent or skipped.
        position: Position of the last entry that was read.
        ended: Whether the log has ended.
    """

    name: str
    after: int
    position: int = 0
    ended: bool = False

    def advance(self, entries: Sequence[Entry]) -> bytes:
        """Advance to the last of some entries, and return the bytes of their new events.

        Raises:
            NotFound: The response was deleted.
            InvalidRequest: The first unsent events are no longer stored.
        """
        unsent = []
        for entry in entries:
            if entry.deleted:
                raise NotFound("The response was deleted.", resource=self.name)
            self.position, self.ended = entry.position, entry.ended
            if entry.last > self.after:
                if entry.first > self.after + 1:
                    message = "starting_after: the next events are no longer stored. Get the response instead."
                    raise InvalidRequest(message, field="starting_after")
                unsent.append(entry.after(self.after))
                self.after = entry.last
        return b"".join(unsent)
