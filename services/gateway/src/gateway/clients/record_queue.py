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
        max_records: The maximum number of records.
        max_bytes: The maximum number of bytes of the records' payloads.
    """

    def __init__(self, max_records: int, max_bytes: int) -> None:
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._waiting: dict[str, _TenantRecords] = {}
        self._count = self._bytes = 0

    def __len__(self) -> int:
        """Return the number of waiting records and of taken records that are not done yet."""
        return self._count

    def add(self, record: Record) -> bool:
        """Add a record. Return False if no space is left for the tenant."""
        tenant_records = self._waiting.get(record.tenant) or _TenantRecords()
        length = len(record.payload)
        if (
            tenant_records.count >= self._max_records - self._count
            or tenant_records.size + length > self._max_bytes - self._bytes
        ):
            return False
        self._waiting[record.tenant] = tenant_records
        tenant_records.records.append(record)
        self._count_record(tenant_records, 1, length)
        return True

    def free_share(self, tenant: str) -> float:
        """Return the share of the queue that the tenant can still use if no other tenant adds records."""
        tenant_records = self._waiting.get(tenant) or _TenantRecords()
        records = (self._max_records - self._count - tenant_records.count) / self._max_records
        return min(records, (self._max_bytes - self._bytes - tenant_records.size) / self._max_bytes) / 2

    def take(self, limit: int) -> list[Record]:
        """Take the next records, one tenant after the other. They use space until `done` or `put_back`."""
        taken: list[Record] = []
        while len(taken) < limit:
            tenant = next((name for name, tenant_records in self._waiting.items() if tenant_records.records), None)
            if tenant is None:
                break
            tenant_records = self._waiting[tenant] = self._waiting.pop(tenant)  # moves the tenant to the end
            taken.append(tenant_records.records.popleft())
        return taken

    def done(self, record: Record) -> None:
        """Release the space of a taken record."""
        tenant_records = self._waiting[record.tenant]
        self._count_record(tenant_records, -1, -len(record.payload))
        if not tenant_records.count:
            del self._waiting[record.tenant]

    def put_back(self, records: list[Record]) -> None:
        """Put taken records back at the front of the queue, in their order."""
        for record in reversed(records):
            self._waiting[record.tenant].records.appendleft(record)

    def _count_record(self, tenant_records: "_TenantRecords", count: int, size: int) -> None:
        tenant_records.count += count
        tenant_records.size += size
        self._count += count
        self._bytes += size


class _TenantRecords:
    """The records of one tenant. The count and the size include taken records."""

    __slots__ = ("count", "records", "size")

    def __init__(self) -> None:
        self.records: deque[Record] = deque()
        self.count = self.size = 0
