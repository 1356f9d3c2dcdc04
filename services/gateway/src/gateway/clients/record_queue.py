"""A queue of waiting records: bounded in number and bytes, and fair between tenants."""

from collections import deque

from gateway.ports.records import Record


class RecordQueue:
    """Records by tenant; each tenant's records keep their order.

    A tenant may use as much room as is still free. One tenant alone can use half of the queue, and two tenants can
    use a third each. So the next tenant always finds some room, and no accepted record is dropped. Records are
    taken from the tenants in turn: between two records of one tenant there is at most one record of each other
    tenant.

    Source: Choudhury and Hahne, "Dynamic queue length thresholds for shared-memory packet switches" (1998).

    Args:
        most: The maximum number of records.
        size: The maximum number of bytes of their payloads.
    """

    def __init__(self, most: int, size: int) -> None:
        self._most = most
        self._size = size
        self._waiting: dict[str, _Lane] = {}
        self._count = self._bytes = 0

    def __len__(self) -> int:
        """Return the number of records that wait or are being sent."""
        return self._count

    def add(self, record: Record) -> bool:
        """Add a record; return whether there was room."""
        lane = self._waiting.get(record.tenant) or _Lane()
        length = len(record.payload)
        if lane.count >= self._most - self._count or lane.size + length > self._size - self._bytes:
            return False
        self._waiting[record.tenant] = lane
        lane.records.append(record)
        self._counted(lane, 1, length)
        return True

    def left(self, tenant: str) -> float:
        """Return the share of the queue that the tenant can still use, if no other tenant adds records."""
        lane = self._waiting.get(tenant) or _Lane()
        records = (self._most - self._count - lane.count) / self._most
        return min(records, (self._size - self._bytes - lane.size) / self._size) / 2

    def take(self, most: int) -> list[Record]:
        """Take the next records, from each tenant in turn. They keep their room until `done` or `back`."""
        taken: list[Record] = []
        while len(taken) < most:
            tenant = next((name for name, lane in self._waiting.items() if lane.records), None)
            if tenant is None:
                break
            lane = self._waiting[tenant] = self._waiting.pop(tenant)  # moves it to the end of the turns
            taken.append(lane.records.popleft())
        return taken

    def done(self, record: Record) -> None:
        """Release the room of a record that was taken."""
        lane = self._waiting[record.tenant]
        self._counted(lane, -1, -len(record.payload))
        if not lane.count:
            del self._waiting[record.tenant]

    def back(self, records: list[Record]) -> None:
        """Put records that were taken back to the front, in their order."""
        for record in reversed(records):
            self._waiting[record.tenant].records.appendleft(record)

    def _counted(self, lane: "_Lane", count: int, size: int) -> None:
        lane.count += count
        lane.size += size
        self._count += count
        self._bytes += size


class _Lane:
    """The records of one tenant; those being sent count."""

    __slots__ = ("count", "records", "size")

    def __init__(self) -> None:
        self.records: deque[Record] = deque()
        self.count = self.size = 0
