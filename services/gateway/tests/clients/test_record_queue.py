"""The queue of records, whose space the tenants share."""

from collections import Counter

from gateway.clients.record_queue import RecordQueue
from gateway.ports.records import Record
from hypothesis import given
from hypothesis import strategies as st

_LIMIT, _SIZE = 24, 240


def record(tenant: str, number: int, size: int = 1) -> Record:
    return Record("subject", tenant, f"{number}", b"x" * size)


def test_a_tenant_uses_at_most_the_space_that_it_leaves_free() -> None:
    """Each tenant may use half of the free space: the first 12 of 24 records, the second 6 of 12, and so on."""
    queue = RecordQueue(_LIMIT, _SIZE)
    for tenant, room in (("a", 12), ("b", 6), ("c", 3), ("d", 2)):
        assert [queue.add(record(tenant, number)) for number in range(20)] == [True] * room + [False] * (20 - room)
    assert len(queue) == 23


def test_bytes_are_limited_like_records() -> None:
    """The limit in bytes works like the limit in records."""
    queue = RecordQueue(_LIMIT, _SIZE)
    assert [queue.add(record("a", number, 50)) for number in range(3)] == [True, True, False]
    assert queue.add(record("b", 0, 50))


def test_tenants_take_turns() -> None:
    """Tenants take turns, even across calls, and the records of each tenant stay in order."""
    queue = RecordQueue(_LIMIT, _SIZE)
    for tenant, count in (("a", 9), ("b", 2), ("c", 3)):
        for number in range(count):
            assert queue.add(record(tenant, number))
    names = [[f"{queued.tenant}{queued.id}" for queued in queue.take(4)] for _ in range(4)]
    assert names == [["a0", "b0", "c0", "a1"], ["b1", "c1", "a2", "c2"], ["a3", "a4", "a5", "a6"], ["a7", "a8"]]


def test_returned_records_come_first() -> None:
    """Records that are put back come first in their order, and their space stays reserved."""
    queue = RecordQueue(_LIMIT, _SIZE)
    for number in range(12):
        assert queue.add(record("a", number))
    taken = queue.take(5)
    assert not queue.add(record("a", 12))
    queue.done(taken[1])
    queue.put_back([taken[0], *taken[2:]])
    assert queue.add(record("a", 12))
    assert [queued.id for queued in queue.take(20)] == ["0", "2", "3", "4", *map(str, range(5, 13))]


def test_the_free_share_of_a_tenant() -> None:
    """The free share of a tenant is a fraction of the whole space."""
    queue = RecordQueue(_LIMIT, _SIZE)
    assert queue.free_share("a") == 0.5
    for number in range(12):
        queue.add(record("a", number))
    assert (queue.free_share("a"), queue.free_share("b")) == (0.0, 0.25)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 60), st.sampled_from(["add", "sent", "failed"]))))
def test_the_limits_hold_and_nothing_is_lost(steps: list[tuple[str, int, str]]) -> None:
    """The limits hold in every order of steps, and each accepted record stays until it is done."""
    queue = RecordQueue(_LIMIT, _SIZE)
    held: dict[tuple[str, str], Record] = {}
    for number, (tenant, size, step) in enumerate(steps):
        if step == "add":
            new = record(tenant, number, size)
            others = [queued for queued in held.values() if queued.tenant == tenant]
            if queue.add(new):
                assert len(others) < _LIMIT - len(held)
                held[tenant, new.id] = new
        else:
            taken = queue.take(3)
            assert all(held[queued.tenant, queued.id] is queued for queued in taken)
            for each in taken if step == "sent" else ():
                queue.done(each)
                del held[each.tenant, each.id]
            if step == "failed":
                queue.put_back(taken)
        assert len(queue) == len(held) <= _LIMIT
        assert sum(len(queued.payload) for queued in held.values()) <= _SIZE
    last = queue.take(_LIMIT)
    assert Counter((queued.tenant, queued.id) for queued in last) == Counter(held.keys())
    for tenant in "abc":
        mine = [int(queued.id) for queued in last if queued.tenant == tenant]
        assert mine == sorted(mine)
