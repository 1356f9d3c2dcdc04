"""The lanes of the queue."""

import itertools
from typing import Any

import pytest
from causeway.ingest.v1 import ingest_pb2
from ingest.adapters.queue import NatsQueue
from ingest.domain import Failure
from nats.aio.client import Client
from servicekit import keys
from servicekit.errors import Unavailable
from servicekit.nats import GENERATION, IngestTransport


async def taken(queue: NatsQueue, count: int) -> list[str]:
    """Return the ids of the next jobs, and settle each job at once."""
    found = []
    for _ in range(count):
        delivery = await queue.take()
        assert delivery is not None
        found.append(delivery.job.job_id)
        await delivery.done()
    return found


async def test_a_full_lane_does_not_delay_others(client: Client, transport: IngestTransport, gateway: Any) -> None:
    """With any number of jobs in the last lane, a job of the first lane is among the next two. No lane starves."""
    seconds = itertools.count()
    queue = NatsQueue(client, transport, lambda: next(seconds))
    for number in range(40):
        await gateway.submit(f"{number}.md", b"x", lane=3)
    assert await taken(queue, 3)
    for _ in range(3):
        quick = await gateway.submit("quick.md", b"x", lane=0)
        assert quick in await taken(queue, 2)
    quick_ones = {await gateway.submit(f"quick {number}.md", b"x", lane=0) for number in range(16)}
    assert not set(await taken(queue, 8)) <= quick_ones


async def test_an_empty_lane_is_polled_again_after_a_while(
    client: Client, transport: IngestTransport, gateway: Any
) -> None:
    """In between, taking a job costs one request. All lanes are polled before the queue counts as empty."""
    now = 0.0
    queue = NatsQueue(client, transport, lambda: now)
    submitted = [await gateway.submit(f"{number}.md", b"x", lane=3) for number in range(9)]
    found = await taken(queue, 1)
    before = client.stats["out_msgs"]
    found += await taken(queue, 7)
    assert client.stats["out_msgs"] - before == 2 * 7  # a poll and an acknowledgement of each job
    quick = await gateway.submit("quick.md", b"x", lane=0)
    found += await taken(queue, 1)
    assert found == submitted
    assert await taken(queue, 1) == [quick]
    submitted = [await gateway.submit(f"{number}.md", b"x", lane=3) for number in range(9)]
    assert await taken(queue, 1) == submitted[:1]
    quick = await gateway.submit("quick.md", b"x", lane=0)
    now = 1
    assert quick in await taken(queue, 2)


async def test_every_lane_is_emptied(client: Client, transport: IngestTransport, gateway: Any) -> None:
    """Each job comes once. Then the queue is empty."""
    queue = NatsQueue(client, transport)
    submitted = [await gateway.submit(f"{n}.md", b"x", lane=n % keys.INGEST_LANES) for n in range(12)]
    assert sorted(await taken(queue, 12)) == sorted(submitted)
    assert await queue.take() is None


async def test_a_job_that_was_sent_again_is_as_old_as_it_was(
    client: Client, transport: IngestTransport, gateway: Any
) -> None:
    """The message contains the job's generation, because its position in the stream is a new one."""
    queue = NatsQueue(client, transport)
    await gateway.submit("a.md", b"x", headers={GENERATION: "77"})
    delivery = await queue.take()
    assert delivery is not None
    assert delivery.job.document.generation == 77  # type: ignore[attr-defined]  # it is about a file


@pytest.mark.parametrize("said", ["x", "", "-1", "9" * 30, "9" * 5000])
async def test_a_header_that_cannot_be_read_is_buried(
    client: Client, transport: IngestTransport, gateway: Any, said: str
) -> None:
    """A job with an unreadable header becomes a dead letter, which can be sent again. The worker continues."""
    queue = NatsQueue(client, transport)
    await gateway.submit("a.md", b"a", headers={GENERATION: said})
    good = await gateway.submit("b.md", b"b")
    assert await queue.take() is None
    assert await taken(queue, 1) == [good]
    [letter] = await gateway.dead()
    assert letter.headers["Causeway-Reason"] == "INVALID_REQUEST"
    assert GENERATION in letter.headers["Causeway-Message"]
    assert int(letter.headers[GENERATION]) == transport.generation(1)
    await queue.close()


@pytest.mark.parametrize("is_readable", [True, False], ids=["given up", "invalid"])
async def test_a_dead_letter_has_no_content(
    client: Client, transport: IngestTransport, gateway: Any, is_readable: bool
) -> None:
    """A dead letter has all fields of its job except the bytes of the original, so that it needs little space."""
    queue = NatsQueue(client, transport)
    await gateway.submit("a.txt", b"a", has_content=True, headers={} if is_readable else {GENERATION: "x"})
    queued = await transport.jetstream.get_msg(keys.INGEST_STREAM, 1)
    delivery = await queue.take()
    if delivery is not None:
        assert delivery.job.content == b"a"  # type: ignore[attr-defined]  # it is about a file
        await delivery.bury(Failure("DEADLINE_EXCEEDED", "No answer."))
        await delivery.done()
    [letter] = await gateway.dead()
    assert queued.data is not None
    job = ingest_pb2.IngestJob.FromString(queued.data)
    assert job.content == b"a"
    job.ClearField("content")
    assert ingest_pb2.IngestJob.FromString(letter.data) == job
    await queue.close()


async def test_a_broker_that_is_away_is_not_waited_for(client: Client, transport: IngestTransport) -> None:
    """A call fails at once. A pending request would later bring more jobs than the worker has slots."""
    queue = NatsQueue(client, transport)
    await client.close()
    with pytest.raises(Unavailable):
        await queue.take()
    await queue.close()
    assert await queue.take() is None
