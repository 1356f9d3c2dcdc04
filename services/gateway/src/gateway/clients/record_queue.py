"""Queue records, with limits on their number and bytes, and with fairness between tenants."""

from collections import deque

from gateway.ports.records import Record


class RecordQueue:
    """Waiting records by tenant. The records of each tenant keep their order.

    A tenant may use at most as much space as is still free: one tenant can use half of the queue, and two tenants
    can use a third each. Therefore space is always left for another tenant, and the queue never drops an accepted
    record. The queue returns records round-robin: between two records of one tenant there is at most one record of
    each other tenant.

    Source: Choudhury and Hahne, "Dynamic queue length thresholds for shared-memory packet switches" (1998).

    Args:
        limit: The maximum number of records.
        size: The maximum number of bytes of the records' payloads.
    """

    def __init__(self, limit: int, size: int) -> None:
        self._limit = limit
        self._size = size
        self._waiting: dict[str, _Lane] = {}
        self._count = self._bytes = 0

    def __len__(self) -> int:
        """Return the number of waiting records and of taken records that are not done yet."""
        return self._count

    def add(self, record: Record) -> bool:
        """Add a record. Return False if no space is left for the tenant."""
        lane = self._waiting.get(record.tenant) or _Lane()
        length = len(record.payload)
        if lane.count >= self._limit - self._count or lane.size + length > self._size - self._bytes:
            return False
        self._waiting[record.tenant] = lane
        lane.records.append(record)
        self._count_record(lane, 1, length)
        return True

    def free_share(self, tenant: str) -> float:
        """Return the share of the queue that the tenant can still use if no other tenant adds records."""
        lane = self._waiting.get(tenant) or _Lane()
        records = (self._limit - self._count - lane.count) / self._limit
        return min(records, (self._size - self._bytes - lane.size) / self._size) / 2

    def take(self, limit: int) -> list[Record]:
        """Take the next records, one tenant after the other. They use space until `done` or `put_back`."""
        taken: list[Record] = []
        while len(taken) < limit:
            tenant = next((name for name, lane in self._waiting.items() if lane.records), None)
            if tenant is None:
                break
            lane = self._waiting[tenant] = self._waiting.pop(tenant)  # moves the tenant to the end
            taken.append(lane.records.popleft())
        return taken

    def done(self, record: Record) -> None:
        """Release the space of a taken record."""
        lane = self._waiting[record.tenant]
        self._count_record(lane, -1, -len(record.payload))
        if not lane.count:
            del self._waiting[record.tenant]

    def put_back(self, records: list[Record]) -> None:
        """Put taken records back at the front of the queue, in their order."""
        for record in reversed(records):
            self._waiting[record.tenant].records.appendleft(record)

    def _count_record(self, lane: "_Lane", count: int, size: int) -> None:
        lane.count += count
        lane.size += size
        self._count += count
        self._bytes += size


class _Lane:
    """The records of one tenant. The count and the size include taken records."""

    __slots__ = ("count", "records", "size")

    def __init__(self) -> None:
        self.records: deque[Record] = deque()
        self.count = self.size = 0
