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


async def take_jobs(queue: NatsQueue, count: int) -> list[str]:
    """Take jobs and acknowledge each at once; return their ids."""
    found = []
    for _ in range(count):
        delivery = await queue.take()
        assert delivery is not None
        found.append(delivery.job.job_id)
        await delivery.acknowledge()
    return found


async def test_a_full_lane_does_not_delay_others(client: Client, transport: IngestTransport, gateway: Any) -> None:
    """If the last lane has many jobs, the queue still takes a job of the first lane within two polls. If the first
    lane has many jobs, the queue takes a job of the last lane within eight polls.
    """
    seconds = itertools.count()
    queue = NatsQueue(client, transport, lambda: next(seconds))
    for number in range(40):
        await gateway.submit(f"{number}.md", b"x", lane=3)
    assert await take_jobs(queue, 3)
    for _ in range(3):
        quick = await gateway.submit("quick.md", b"x", lane=0)
        assert quick in await take_jobs(queue, 2)
    quick_ones = {await gateway.submit(f"quick {number}.md", b"x", lane=0) for number in range(16)}
    assert not set(await take_jobs(queue, 8)) <= quick_ones


async def test_an_empty_lane_is_polled_less_often(client: Client, transport: IngestTransport, gateway: Any) -> None:
    """For a while, the queue polls an empty lane last, so that it takes a job with one request. After this time, it
    polls the lane in the usual order again.
    """
    now = 0.0
    queue = NatsQueue(client, transport, lambda: now)
    submitted = [await gateway.submit(f"{number}.md", b"x", lane=3) for number in range(9)]
    found = await take_jobs(queue, 1)
    before = client.stats["out_msgs"]
    found += await take_jobs(queue, 7)
    assert client.stats["out_msgs"] - before == 2 * 7  # a poll and an acknowledgement of each job
    quick = await gateway.submit("quick.md", b"x", lane=0)
    found += await take_jobs(queue, 1)
    assert found == submitted
    assert await take_jobs(queue, 1) == [quick]
    submitted = [await gateway.submit(f"{number}.md", b"x", lane=3) for number in range(9)]
    assert await take_jobs(queue, 1) == submitted[:1]
    quick = await gateway.submit("quick.md", b"x", lane=0)
    now = 1
    assert quick in await take_jobs(queue, 2)


async def test_every_lane_is_emptied(client: Client, transport: IngestTransport, gateway: Any) -> None:
    """The queue delivers each job once. Then it is empty."""
    queue = NatsQueue(client, transport)
    submitted = [await gateway.submit(f"{n}.md", b"x", lane=n % keys.INGEST_LANES) for n in range(12)]
    assert sorted(await take_jobs(queue, 12)) == sorted(submitted)
    assert await queue.take() is None


async def test_a_resent_job_keeps_its_generation(client: Client, transport: IngestTransport, gateway: Any) -> None:
    """A resent job has the generation in its message's header, not one from the new position in the stream."""
    queue = NatsQueue(client, transport)
    await gateway.submit("a.md", b"x", headers={GENERATION: "77"})
    delivery = await queue.take()
    assert delivery is not None
    assert delivery.job.document.generation == 77  # type: ignore[attr-defined]  # it is about a file


@pytest.mark.parametrize("header", ["x", "-1", "9" * 30, "9" * 5000])
async def test_a_message_with_an_invalid_header_becomes_a_dead_letter(
    client: Client, transport: IngestTransport, gateway: Any, header: str
) -> None:
    """A job with an invalid header becomes a dead letter, which can be resent. The worker continues."""
    queue = NatsQueue(client, transport)
    await gateway.submit("a.md", b"a", headers={GENERATION: header})
    good = await gateway.submit("b.md", b"b")
    assert await queue.take() is None
    assert await take_jobs(queue, 1) == [good]
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
        await delivery.copy_to_dead_letters(Failure("DEADLINE_EXCEEDED", "No answer."))
        await delivery.acknowledge()
    [letter] = await gateway.dead()
    assert queued.data is not None
    job = ingest_pb2.IngestJob.FromString(queued.data)
    assert job.content == b"a"
    job.ClearField("content")
    assert ingest_pb2.IngestJob.FromString(letter.data) == job
    await queue.close()


async def test_take_does_not_wait_for_an_unavailable_broker(client: Client, transport: IngestTransport) -> None:
    """Without a connection, `take` fails immediately. Otherwise, its requests would later receive more jobs than
    the worker has slots.
    """
    queue = NatsQueue(client, transport)
    await client.close()
    with pytest.raises(Unavailable):
        await queue.take()
    await queue.close()
    assert await queue.take() is None
