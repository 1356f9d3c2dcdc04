"""The records of requests, for accounting and for audit."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Record:
    """One record.

    Attributes:
        subject: The NATS subject: `keys.usage_subject` or `keys.audit_subject`.
        tenant: The tenant of the request.
        id: The unique id. A record that the gateway sends twice is stored once.
        payload: A JSON object (docs/usage.md).
    """

    subject: str
    tenant: str
    id: str
    payload: bytes


class Records(Protocol):
    """Accepts records and delivers them."""

    dropped: int
    """The number of records that were dropped because the queue was full."""

    @property
    def waiting(self) -> int:
        """Return the number of records that are not delivered yet."""
        ...

    def write(self, record: Record) -> None:
        """Accept a record without waiting. If the queue is full, drop and count the record."""
        ...

    async def reachable(self, tenant: str) -> bool:
        """Return whether a new record of the tenant can probably be delivered."""
        ...
