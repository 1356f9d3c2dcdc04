"""Usage records in memory."""

from gateway.ports.records import Record


class FakeRecords:
    """A fake of `ports.records.Records`.

    Attributes:
        written: All records in order.
        away: Whether the broker is unavailable; then records are dropped.
        dropped: The number of dropped records.
    """

    def __init__(self) -> None:
        self.written: list[Record] = []
        self.away = False
        self.dropped = 0

    @property
    def waiting(self) -> int:
        """Return 0: no record ever waits."""
        return 0

    def write(self, record: Record) -> None:
        """See `ports.records.Records`."""
        if self.away:
            self.dropped += 1
        else:
            self.written.append(record)

    async def reachable(self, tenant: str) -> bool:
        """See `ports.records.Records`."""
        return not self.away
