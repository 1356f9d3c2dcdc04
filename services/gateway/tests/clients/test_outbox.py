import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from causeway_testing.servers import eventually, free_ports, nats_server
from gateway.clients.nats_connection import NatsLink
from gateway.clients.outbox import Outbox
from gateway.ports.records import Record
from nats.js import JetStreamContext
from servicekit import keys, nats
from servicekit.errors import Unavailable


def record(number: int, tenant: str = "t") -> Record:
    return Record(keys.usage_subject(tenant), tenant, f"{tenant}-{number}", b'{"number":%d}' % number)


@pytest.fixture
async def url(tmp_path: Path) -> AsyncIterator[str]:
    async with nats_server(tmp_path) as url:
        yield url


async def stored(url: str) -> list[bytes]:
    """Return the payloads in the stream, in order."""
    client = await nats.connect(url, "test")
    try:
        jetstream = client.jetstream()
        count = (await jetstream.stream_info(keys.USAGE_STREAM)).state.messages
        return [(await jetstream.get_msg(keys.USAGE_STREAM, number + 1)).data or b"" for number in range(count)]
    finally:
        await client.close()


async def test_records_are_stored_in_their_stream(url: str) -> None:
    """All records are stored once and in order, including those that are written last before the outbox closes."""
    async with NatsLink(url, retry=0.01) as link, Outbox(link.records, batch_size=7, retry=0.01) as outbox:
        for number in range(50):
            outbox.write(record(number))
        await eventually(lambda: outbox.waiting == 0)
        assert await outbox.reachable("t")
        for number in range(50, 60):
            outbox.write(record(number))
        outbox.write(record(59))
    assert await stored(url) == [record(number).payload for number in range(60)]
    assert outbox.dropped == 0


async def test_records_wait_for_the_broker(tmp_path: Path) -> None:
    """Records wait for the broker. The outbox counts the records for which it has no space as dropped."""
    (port,) = free_ports(1)
    async with (
        NatsLink(f"nats://127.0.0.1:{port}", retry=0.05) as link,
        Outbox(link.records, max_records=40, retry=0.05) as outbox,
    ):
        assert not await outbox.reachable("t")
        for number in range(25):
            outbox.write(record(number))
        assert (outbox.waiting, outbox.dropped) == (20, 5)
        async with nats_server(tmp_path, port) as url:
            await eventually(lambda: outbox.waiting == 0)
            assert await outbox.reachable("t")
            assert await stored(url) == [record(number).payload for number in range(20)]


async def test_the_flood_of_a_tenant_does_not_delay_others(tmp_path: Path) -> None:
    """A flood of one tenant leaves space for other tenants, whose records are sent among the first."""
    (port,) = free_ports(1)
    async with (
        contextlib.AsyncExitStack() as server,
        NatsLink(f"nats://127.0.0.1:{port}", retry=0.05) as link,
        Outbox(link.records, max_records=200, batch_size=10, retry=0.05) as outbox,
    ):
        for number in range(500):
            outbox.write(record(number, "flood"))
        assert outbox.dropped == 400
        for number in range(20):
            outbox.write(record(number, "quiet"))
        assert outbox.dropped == 400
        url = await server.enter_async_context(nats_server(tmp_path, port))
        await eventually(lambda: outbox.waiting == 0)
        client = await nats.connect(url, "test")
        jetstream = client.jetstream()
        first_subjects = [(await jetstream.get_msg(keys.USAGE_STREAM, at + 1)).subject for at in range(40)]
        await client.close()
    assert first_subjects.count(keys.usage_subject("quiet")) == 20


async def test_records_are_bounded_in_bytes() -> None:
    """The records of a tenant have a limit in bytes, and small records of other tenants still have space."""

    async def unavailable() -> JetStreamContext:
        raise Unavailable("NATS is unavailable.")

    async with Outbox(unavailable, max_bytes=100_000, retry=0.01) as outbox:
        for number in range(10):
            outbox.write(Record(keys.usage_subject("t"), "t", f"{number}", b"x" * 10_000))
        assert (outbox.waiting, outbox.dropped) == (5, 5)
        outbox.write(record(0, "other"))
        assert (outbox.waiting, outbox.dropped) == (6, 5)


async def test_a_tenant_with_little_space_is_not_reachable(url: str) -> None:
    """`reachable` is false for a tenant with little space, before it drops a record, and true for other tenants."""
    resumed = asyncio.Event()
    async with NatsLink(url, retry=0.01) as link:

        async def paused() -> JetStreamContext:
            jetstream = await link.records()
            await resumed.wait()
            return jetstream

        async with Outbox(link.records, max_records=80, retry=0.01) as outbox:
            outbox.write(record(0))
            await eventually(lambda: outbox.waiting == 0 and link._records is not None)
            outbox._jetstream = paused
            for number in range(1, 36):
                outbox.write(record(number))
            resumed.set()
            assert not await outbox.reachable("t")
            assert await outbox.reachable("other")
            assert outbox.dropped == 0


async def test_a_record_that_is_too_large_is_dropped(url: str) -> None:
    """A record that is too large for the broker is dropped and counted, and the others are stored."""
    async with NatsLink(url, retry=0.01) as link, Outbox(link.records, batch_size=2, retry=0.01) as outbox:
        for number in (0, 1):
            outbox.write(Record(keys.usage_subject("t"), "t", f"large-{number}", b"x" * 1_500_000))
        outbox.write(record(0))
        await eventually(lambda: outbox.waiting == 0)
        assert await outbox.reachable("t")
        assert outbox.dropped == 2
    assert await stored(url) == [record(0).payload]


async def test_records_of_many_requests_are_sent_together(url: str) -> None:
    """Records written within the gathering time form one batch. Closing the outbox sends the batch at once."""
    batches = 0
    async with NatsLink(url, retry=0.01) as link:

        async def counted() -> JetStreamContext:
            nonlocal batches
            jetstream = await link.records()
            batches += 1
            return jetstream

        await eventually(lambda: link._records is not None)
        async with Outbox(counted, batch_delay=600, retry=0.01) as outbox:
            for number in range(20):
                outbox.write(record(number))
                await asyncio.sleep(0)
            assert (outbox.waiting, batches) == (20, 0)
    assert batches == 1
    assert await stored(url) == [record(number).payload for number in range(20)]


async def test_a_refused_record_does_not_delay_others(url: str) -> None:
    """A record that no stream accepts is sent again until a stream accepts it. The others are stored once."""
    refused = Record("causeway.nowhere.t", "t", "t-lost", b"{}")
    async with NatsLink(url, retry=0.01) as link, Outbox(link.records, retry=0.01) as outbox:
        for each in (record(0), refused, record(1)):
            outbox.write(each)
        await eventually(lambda: outbox.waiting == 1)
        assert not await outbox.reachable("t")
        client = await nats.connect(url, "test")
        await client.jetstream().add_stream(name="NOWHERE", subjects=["causeway.nowhere.*"])
        await client.close()
        await eventually(lambda: outbox.waiting == 0)
    assert await stored(url) == [record(0).payload, record(1).payload]


async def test_closing_does_not_wait_for_an_unreachable_broker() -> None:
    """Closing the outbox does not wait for an unreachable broker, and leaves the record in the queue."""

    async def unavailable() -> JetStreamContext:
        raise Unavailable("NATS is unavailable.")

    async with asyncio.timeout(60), Outbox(unavailable, retry=0.01) as outbox:
        outbox.write(record(0))
        await asyncio.sleep(0.02)
        assert not await outbox.reachable("t")
    assert outbox.waiting == 1
