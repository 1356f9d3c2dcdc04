"""The room that records share while they wait: bounded in number and in bytes, and fair between tenants."""

from collections import deque

from gateway.ports.records import Record


class RecordQueue:
    """Records by their tenants; each tenant's stay in their order.

    A tenant may hold as much as it leaves free: one alone half of the room, two a third each. So there is always
    some for who comes next, and nothing that was taken is thrown out again. Records are taken from the tenants in
    turn: before the next one of a tenant there is at most one of each other.

    Source: Choudhury and Hahne, "Dynamic queue length thresholds for shared-memory packet switches" (1998).

    Args:
        most: Records.
        size: Bytes of their payloads.
    """

    def __init__(self, most: int, size: int) -> None:
        self._most = most
        self._size = size
        self._waiting: dict[str, _Lane] = {}
        self._count = self._bytes = 0

    def __len__(self) -> int:
        """How many records wait, or are being sent."""
        return self._count

    def add(self, record: Record) -> bool:
        """Whether the record has found room."""
        lane = self._waiting.get(record.tenant) or _Lane()
        length = len(record.payload)
        if lane.count >= self._most - self._count or lane.size + length > self._size - self._bytes:
            return False
        self._waiting[record.tenant] = lane
        lane.records.append(record)
        self._counted(lane, 1, length)
        return True

    def left(self, tenant: str) -> float:
        """How much of the whole room the tenant has before it, where nobody else takes any."""
        lane = self._waiting.get(tenant) or _Lane()
        records = (self._most - self._count - lane.count) / self._most
        return min(records, (self._size - self._bytes - lane.size) / self._size) / 2

    def take(self, most: int) -> list[Record]:
        """The next ones, of each tenant in turn. They keep their room until they are `done` or put `back`."""
        taken: list[Record] = []
        while len(taken) < most:
            tenant = next((name for name, lane in self._waiting.items() if lane.records), None)
            if tenant is None:
                break
            lane = self._waiting[tenant] = self._waiting.pop(tenant)  # at the end, until its turn comes again
            taken.append(lane.records.popleft())
        return taken

    def done(self, record: Record) -> None:
        """Gives the room of a record back that was taken."""
        lane = self._waiting[record.tenant]
        self._counted(lane, -1, -len(record.payload))
        if not lane.count:
            del self._waiting[record.tenant]

    def back(self, records: list[Record]) -> None:
        """Puts records that were taken back in front, in their order."""
        for record in reversed(records):
            self._waiting[record.tenant].records.appendleft(record)

    def _counted(self, lane: "_Lane", count: int, size: int) -> None:
        lane.count += count
        lane.size += size
        self._count += count
        self._bytes += size


class _Lane:
    """One tenant's; what is being sent counts."""

    __slots__ = ("count", "records", "size")

    def __init__(self) -> None:
        self.records: deque[Record] = deque()
        self.count = self.size = 0
