"""The attachments of a mail, within the limits for files within a file."""

from collections.abc import Iterator

from ingest.parsing.content import Member, Omission
from ingest.parsing.frames import Request
from ingest.parsing.text.names import MemberNames


class Attachments:
    """Creates unique names for attachments, and leaves out attachments that exceed the limits.

    Args:
        request: The request with the limits.
    """

    def __init__(self, request: Request) -> None:
        self._names = MemberNames()
        self._count = request.max_members
        self._bytes = request.max_member_bytes
        self._left_out = 0

    def accepted(self, name: str, content: bytes) -> Iterator[Member]:
        """Yield the attachment if it is not empty and within the limits."""
        if not content:
            return
        if not self._count or len(content) > self._bytes:
            self._left_out += 1
            return
        self._count -= 1
        self._bytes -= len(content)
        yield Member(self._names.unique_name(name, "attachment"), content)

    def left_out(self) -> Iterator[Omission]:
        """Yield an omission for the attachments that exceeded the limits."""
        if self._left_out:
            yield Omission("TooLarge", f"Attachments exceed the limits and were left out: {self._left_out}.")
