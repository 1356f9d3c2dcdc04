"""Attachments as files within a file, as many as there is room for."""

from collections.abc import Iterator

from ingest.parsing.content import Member, Omission
from ingest.parsing.frames import Request
from ingest.parsing.text.names import MemberNames


class Members:
    """Gives attachments names, and leaves those out for which there is no room.

    Args:
        request: Says how much room there is.
    """

    def __init__(self, request: Request) -> None:
        self._names = MemberNames()
        self._count = request.max_members
        self._bytes = request.max_member_bytes
        self._left_out = 0

    def of(self, name: str, content: bytes) -> Iterator[Member]:
        """Yield the attachment, unless there is no room for it; an empty one is left out."""
        if not content:
            return
        if not self._count or len(content) > self._bytes:
            self._left_out += 1
            return
        self._count -= 1
        self._bytes -= len(content)
        yield Member(self._names.of(name, "attachment"), content)

    def left_out(self) -> Iterator[Omission]:
        """Yield what is to be said of those for which there was no room."""
        if self._left_out:
            yield Omission("TooLarge", f"Attachments are over the limits and were left out: {self._left_out}.")
