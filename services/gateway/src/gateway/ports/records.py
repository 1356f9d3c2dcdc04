"""What the gateway keeps of requests for those who account for them and those who watch over them."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Record:
    """One record.

    Attributes:
        subject: Where it goes: `keys.usage_subject`, `keys.audit_subject`.
        tenant: Whose it is.
        id: Its own; a record that is sent twice is there once.
        payload: A JSON object (docs/usage.md).
    """

    subject: str
    tenant: str
    id: str
    payload: bytes


class Records(Protocol):
    """Where records go."""

    dropped: int
    """How many found no room."""

    @property
    def waiting(self) -> int:
        """How many are on their way."""
        ...

    def write(self, record: Record) -> None:
        """Takes a record, without waiting; one that finds no room is dropped and counted."""
        ...

    async def reachable(self, tenant: str) -> bool:
        """Whether a tenant's record that is written now will get where it should, as far as can be told."""
        ...
