"""The contract of the port, on the fake and on the adapter with a real nats-server."""

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import pairwise

import pytest
from causeway_testing.gateway.response_log import FakeResponseLog
from gateway.clients.nats_connection import NatsLink
from gateway.clients.response_log import NatsResponseLog
from gateway.domain.response_log import Entry
from gateway.domain.responses import RESPONSE, new_name
from gateway.ports.response_log import ResponseLog
from nats.errors import TimeoutError as NatsTimeout
from nats.js import JetStreamContext
from servicekit import response_keys
from servicekit.deadline import Deadline
from servicekit.errors import Conflict, PayloadTooLarge, Unavailable
from servicekit.principal import Principal

ANN = Principal("local", "ann@example.com", issuer="https://id.example.com")
BOB = replace(ANN, user="bob|ä *.>")


def soon() -> Deadline:
    return Deadline.after(120)


def name(age: int | None = None) -> str:
    made = new_name()
    return f"{RESPONSE}_{made if age is None else f'{age:012x}' + made[12:]}"


def events(first: int, count: int = 1, writer: str = "a") -> Entry:
    data = b"".join(b"event: e\ndata: %d\n\n" % number for number in range(first, first + count))
    return Entry(writer, first, first + count - 1, data)


async def read_all(log: ResponseLog, of: str, principal: Principal = ANN, after: int = 0) -> list[Entry]:
    found: list[Entry] = []
    while batch := await log.read(principal, of, found[-1].position if found else after, soon()):
        found += batch
    return found


@pytest.fixture(params=["fake", "nats"])
def log(request: pytest.FixtureRequest) -> ResponseLog:
    if request.param == "fake":
        return FakeResponseLog(limit=3)
    link: NatsLink = request.getfixturevalue("link")
    return NatsResponseLog(link.response_log, limit=3)


async def test_entries_are_written_and_read(log: ResponseLog) -> None:
    """Entries are read as written, from any position, and only by their owner."""
    one = name()
    assert await read_all(log, one) == []
    assert await log.last(ANN, one, soon()) is None
    entries = [events(0, 2), events(2), replace(events(3, 40), data=os.urandom(40_000)), Entry("b", ended=True)]
    positions = [0]
    for entry in entries:
        positions.append(await log.append(ANN, one, entry, positions[-1], soon()))
    assert positions == sorted(set(positions))
    found = await read_all(log, one)
    assert all(read.equals_except_position(entry) for read, entry in zip(found, entries, strict=True))
    assert [(entry.before, entry.position) for entry in found] == list(pairwise(positions))
    for at, position in enumerate(positions):
        assert await read_all(log, one, after=position) == found[at:]
    assert await read_all(log, one, BOB) == []
    last = await log.last(ANN, one, soon())
    assert last is not None
    assert last.position == positions[-1]
    assert last.equals_except_position(entries[-1])


async def test_a_log_has_one_writer(log: ResponseLog) -> None:
    """A writer cannot append to the log after another writer has."""
    one = name()
    first = await log.append(ANN, one, events(0), 0, soon())
    marker = await log.append(ANN, one, Entry("b", 1, 0), first, soon())
    for stale in (events(1), events(0)):
        for position in (0, first):
            with pytest.raises(Conflict):
                await log.append(ANN, one, stale, position, soon())
    await log.append(ANN, one, events(1, writer="b"), marker, soon())
    assert [entry.writer for entry in await read_all(log, one)] == ["a", "b", "b"]


async def test_an_entry_is_written_once(log: ResponseLog) -> None:
    """A repeated write returns the position of the first one."""
    one = name()
    first = await log.append(ANN, one, events(0), 0, soon())
    second = await log.append(ANN, one, events(1), first, soon())
    assert await log.append(ANN, one, events(1), first, soon()) == second
    assert len(await read_all(log, one)) == 2


async def test_a_watch_receives_each_entry(log: ResponseLog) -> None:
    """A watch receives each stored entry in order, with the previous position. It receives no refused entry."""
    one = name()
    heard: asyncio.Queue[Entry] = asyncio.Queue()
    first = await log.append(ANN, one, events(0), 0, soon())
    async with log.watch(ANN, one, heard.put_nowait, soon()):
        with pytest.raises(Conflict):
            await log.append(ANN, one, events(7), 0, soon())
        second = await log.append(ANN, one, events(1), first, soon())
        third = await log.append(ANN, one, events(2), second, soon())
        await log.append(BOB, one, events(9), 0, soon())
        received = [await asyncio.wait_for(heard.get(), 30) for _ in range(2)]
        positions = [(entry.first, entry.before, entry.position) for entry in received]
        assert positions == [(1, first, second), (2, second, third)]
        await log.delete(ANN, one, soon())
        assert (await asyncio.wait_for(heard.get(), 30)).deleted
    assert heard.empty()


async def test_a_deleted_log_accepts_no_entry(log: ResponseLog) -> None:
    """A deleted log accepts no entry, not even a new first entry."""
    one = name()
    first = await log.append(ANN, one, events(0), 0, soon())
    await log.delete(ANN, one, soon())
    for position in (0, first):
        with pytest.raises(Conflict):
            await log.append(ANN, one, events(1), position, soon())
    [tombstone] = await read_all(log, one)
    assert (tombstone.deleted, tombstone.ended, tombstone.data) == (True, True, b"")


async def test_all_logs_of_a_user_are_deleted(log: ResponseLog) -> None:
    """`forget` deletes all logs of a user, and none of other users."""
    mine, other = name(), name()
    await log.append(ANN, mine, events(0), 0, soon())
    await log.append(BOB, other, events(0), 0, soon())
    assert await log.forget(ANN.tenant, ANN.owner, soon()) == 1
    assert [entry.deleted for entry in await read_all(log, mine)] == [True]
    assert [entry.deleted for entry in await read_all(log, other, BOB)] == [False]


async def test_the_oldest_logs_are_removed(log: ResponseLog) -> None:
    """The oldest logs of a tenant above its limit are removed. Other tenants keep theirs."""
    other = replace(ANN, tenant="t")
    several = [name(age) for age in range(5)]
    await log.append(other, several[0], events(0), 0, soon())
    for each in several:
        await log.append(ANN, each, events(0), 0, soon())
    assert [len(await read_all(log, log_name)) for log_name in several] == [0, 0, 1, 1, 1]
    assert len(await read_all(log, several[0], other)) == 1


async def test_an_entry_that_is_too_large_is_refused(log: ResponseLog) -> None:
    """An entry that is too large is refused, and the log stays unchanged."""
    one = name()
    with pytest.raises(PayloadTooLarge):
        await log.append(ANN, one, Entry("a", 0, 0, os.urandom(1_100_000)), 0, soon())
    assert await read_all(log, one) == []


async def test_a_long_log_is_read_completely(link: NatsLink) -> None:
    """A log with many or large entries is read completely."""
    log, one = NatsResponseLog(link.response_log), name()
    position = 0
    large = [Entry("a", at, at, os.urandom(300_000)) for at in range(8)]
    for entry in (*large, *(events(at) for at in range(8, 600))):
        position = await log.append(ANN, one, entry, position, soon())
    found = await read_all(log, one)
    assert [entry.first for entry in found] == list(range(600))
    assert [entry.data for entry in found[:8]] == [entry.data for entry in large]


class LostAcknowledgements:
    """A stream whose first acknowledgements are lost.

    Args:
        link: The connection with the stream.
        stores: Whether the stream stores the messages whose acknowledgements are lost.

    Attributes:
        times: The number of acknowledgements to lose.
    """

    def __init__(self, link: NatsLink, *, stores: bool) -> None:
        self._link, self._stores = link, stores
        self.times = 1

    async def stream(self) -> JetStreamContext:
        """Return the stream for the writes."""
        jetstream = await self._link.response_log()
        losing = JetStreamContext(jetstream._nc)
        publish = jetstream.publish

        async def lost(*args: object, **options: object) -> object:
            if self.times:
                self.times -= 1
                if self._stores:
                    await publish(*args, **options)  # type: ignore[arg-type]  # passed on unchanged
                raise NatsTimeout
            return await publish(*args, **options)  # type: ignore[arg-type]  # passed on unchanged

        losing.publish = lost  # type: ignore[method-assign,assignment]  # replaces the call that fails
        return losing


@pytest.mark.parametrize("stores", [True, False])
async def test_a_write_with_a_lost_acknowledgement_is_repeated(link: NatsLink, stores: bool) -> None:
    """A write with a lost acknowledgement is repeated, and its entry is stored once."""
    losing, one = LostAcknowledgements(link, stores=stores), name()
    log = NatsResponseLog(losing.stream)
    first = await log.append(ANN, one, events(0), 0, soon())
    losing.times = 1
    second = await log.append(ANN, one, events(1), first, soon())
    assert losing.times == 0
    assert [entry.position for entry in await read_all(log, one)] == [first, second]


async def test_a_refused_read_is_an_error(link: NatsLink) -> None:
    """If NATS refuses a read as malformed, the log does not look as if it had ended."""
    with pytest.raises(Unavailable):
        await NatsResponseLog(link.response_log).read(ANN, name(), -2, soon())


async def test_a_lost_write_is_refused_after_another_writer(link: NatsLink) -> None:
    """A write with a lost acknowledgement is refused if another writer has written meanwhile."""
    losing, one = LostAcknowledgements(link, stores=False), name()
    other = NatsResponseLog(link.response_log)
    first = await other.append(ANN, one, events(0), 0, soon())
    await other.append(ANN, one, Entry("b", 1, 0), first, soon())
    with pytest.raises(Conflict):
        await NatsResponseLog(losing.stream).append(ANN, one, events(1), first, soon())


async def test_the_stream_is_bounded(link: NatsLink) -> None:
    """The stream has limits of bytes and age, drops its oldest entries, and republishes each stored entry."""
    jetstream = await link.response_log()
    info = (await jetstream.stream_info(response_keys.RESPONSE_LOG_STREAM)).config
    assert (info.max_bytes, info.max_age, info.discard) == (256 * 1024 * 1024, 30 * 86400, "old")
    assert info.republish is not None
    assert info.republish.src == response_keys.RESPONSE_LOG_SUBJECTS
    assert info.republish.dest == response_keys.RESPONSE_LIVE_SUBJECTS
    assert await link.response_log() is jetstream


@pytest.fixture
async def unreachable() -> AsyncIterator[ResponseLog]:
    async with NatsLink("nats://127.0.0.1:1") as link:
        yield NatsResponseLog(link.response_log)


async def test_a_call_without_nats_is_unavailable(unreachable: ResponseLog) -> None:
    """A call without NATS fails with Unavailable."""
    with pytest.raises(Unavailable, match="log of responses"):
        await unreachable.read(ANN, name(), 0, soon())
    with pytest.raises(Unavailable):
        async with unreachable.watch(ANN, name(), lambda _: None, soon()):
            pass


def test_an_entry_returns_its_events_after_a_number() -> None:
    """An entry returns its events after any event number."""
    entry = events(3, 4)
    whole = [b"event: e\ndata: %d\n\n" % number for number in range(3, 7)]
    for number in range(8):
        assert entry.after(number) == b"".join(whole[max(0, number - 2) :])
    assert list(entry.events()) == list(zip(range(3, 7), whole, strict=True))
