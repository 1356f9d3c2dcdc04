import asyncio
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import nats.errors
import nats.js.errors
import pytest
from causeway_testing.servers import eventually, free_ports, nats_server
from hypothesis import given
from hypothesis import strategies as st
from nats.aio.client import Client
from nats.js.api import AckPolicy, ConsumerConfig, DiscardPolicy, RetentionPolicy, StorageType
from opentelemetry import context
from servicekit import keys, telemetry
from servicekit import nats as transport
from servicekit.nats import IngestTransport, connect, ingest_transport

DAY = 86400
GIB = 1024**3


async def test_a_missing_server_is_reported_soon(log: Any) -> None:
    """Without a server, connecting fails within its time-out and leaves nothing running."""
    before = asyncio.all_tasks()
    with pytest.raises(nats.errors.NoServersError):
        await asyncio.wait_for(connect(f"nats://127.0.0.1:{free_ports(1)[0]}", "test", connect_timeout=0.5), 60)
    assert asyncio.all_tasks() == before
    assert len(log) == 1


async def test_a_silent_server_is_a_time_out() -> None:
    """A port that accepts connections and sends nothing raises the error for a missing server."""
    async with AsyncExitStack() as stack:

        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            stack.callback(writer.close)
            await reader.read()

        server = await asyncio.start_server(silent, "127.0.0.1", 0)
        url = f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(nats.errors.NoServersError):
            await asyncio.wait_for(connect(url, "test", connect_timeout=0.5), 60)
        server.close()


async def test_a_cancelled_attempt_leaves_nothing(log: Any) -> None:
    """A cancelled connection attempt leaves no task behind."""
    before = asyncio.all_tasks()
    attempt = asyncio.create_task(connect(f"nats://127.0.0.1:{free_ports(1)[0]}", "test", connect_timeout=60))
    await eventually(lambda: bool(log), what="the first failure")
    attempt.cancel()
    with pytest.raises(asyncio.CancelledError):
        await attempt
    assert asyncio.all_tasks() == before


async def test_the_connection_recovers_with_the_server(tmp_path: Path, log: Any) -> None:
    """During an outage, the client buffers messages up to a limit, and sends them afterwards. The log reports the
    outage once and never contains the password.
    """
    (port,) = free_ports(1)
    async with nats_server(tmp_path, port):
        client = await connect(f"nats://user:hunter2@127.0.0.1:{port}", "test")
        subscription = await client.subscribe("a")
        await client.flush()
    await eventually(lambda: not client.is_connected, what="the loss")
    await client.publish("a", b"meanwhile")
    await client.publish("a", b"x" * 600_000)
    with pytest.raises(nats.errors.OutboundBufferLimitError):
        await client.publish("a", b"x" * 600_000)
    await asyncio.sleep(0.6)  # some attempts
    async with nats_server(tmp_path, port):
        assert (await subscription.next_msg(timeout=10)).data == b"meanwhile"
        await client.close()
    events = [entry["event"] for entry in log]
    assert (events.count("nats disconnected"), events.count("nats reconnected")) == (1, 1)
    assert events.count("nats error") <= 3
    assert "hunter2" not in repr(log)


async def test_existing_streams_and_buckets_are_unchanged(client: Client) -> None:
    """A second call finds the existing streams and buckets, and changes nothing."""
    first = await ingest_transport(client)
    await first.jobs.put("a", b"1")
    second = await ingest_transport(client)
    assert second.epoch == first.epoch
    assert (await second.jobs.get("a")).value == b"1"
    streams = await first.jetstream.streams_info()
    assert sorted(str(stream.config.name) for stream in streams) == [
        "CAUSEWAY_INGEST",
        "CAUSEWAY_INGEST_DEAD",
        "KV_causeway-jobs",
        "KV_causeway-pictures",
        "OBJ_causeway-originals",
    ]


async def test_concurrent_processes_get_the_same_streams(nats_url: str) -> None:
    """Gateways and workers that start at the same time on an empty server all get the same streams."""
    clients = [await connect(nats_url, f"test-{n}") for n in range(8)]
    transports = await asyncio.gather(*(ingest_transport(client) for client in clients))
    assert len({transport.epoch for transport in transports}) == 1
    await asyncio.gather(*(transport.jobs.put(str(n), b"x") for n, transport in enumerate(transports)))
    assert sorted(await transports[0].jobs.keys()) == sorted(map(str, range(8)))
    for client in clients:
        await client.close()


async def test_the_limits_are_as_configured(client: Client) -> None:
    """The queue stores jobs until they are done, and refuses jobs when it is full. A full stream of dead letters
    drops the oldest. States expire. All streams are on the disk.
    """
    jetstream = (await ingest_transport(client)).jetstream

    jobs = (await jetstream.stream_info(keys.INGEST_STREAM)).config
    assert jobs.subjects == ["causeway.ingest.job.>"]
    assert (jobs.retention, jobs.discard) == (RetentionPolicy.WORK_QUEUE, DiscardPolicy.NEW)
    assert (jobs.storage, jobs.max_bytes, jobs.duplicate_window) == (StorageType.FILE, GIB, 120)

    dead = (await jetstream.stream_info(keys.INGEST_DEAD_STREAM)).config
    assert dead.subjects == ["causeway.ingest.dead.>"]
    assert (dead.retention, dead.discard) == (RetentionPolicy.LIMITS, DiscardPolicy.OLD)
    assert (dead.storage, dead.max_bytes) == (StorageType.FILE, GIB // 4)

    for lane in range(keys.INGEST_LANES):
        consumer = (await jetstream.consumer_info(keys.INGEST_STREAM, keys.ingest_consumer(lane))).config
        assert (consumer.ack_wait, consumer.max_deliver, consumer.max_ack_pending) == (transport.ACK_WAIT, -1, 1024)
        subjects = [consumer.filter_subject] if consumer.filter_subject else consumer.filter_subjects
        assert subjects == [f"causeway.ingest.job.{lane}.*.*", *(["causeway.ingest.job.*.*"] if lane == 0 else [])]

    states = (await jetstream.stream_info(f"KV_{keys.JOBS_BUCKET}")).config
    assert (states.max_msgs_per_subject, states.max_age, states.max_bytes) == (1, 30 * DAY, GIB)
    assert (states.storage, states.discard) == (StorageType.FILE, DiscardPolicy.NEW)

    originals = (await jetstream.stream_info(f"OBJ_{keys.ORIGINALS_BUCKET}")).config
    assert (originals.storage, originals.discard, originals.max_age) == (StorageType.FILE, DiscardPolicy.NEW, 0)


async def test_jobs_of_a_version_without_lanes_are_delivered(client: Client) -> None:
    """The one consumer of that version is removed, and the first lane's consumer gets its jobs. A second start
    changes nothing.
    """
    before = (await ingest_transport(client)).jetstream
    for lane in range(keys.INGEST_LANES):
        await before.delete_consumer(keys.INGEST_STREAM, keys.ingest_consumer(lane))
    await before.add_consumer(
        keys.INGEST_STREAM,
        ConsumerConfig(durable_name="ingest-workers", ack_policy=AckPolicy.EXPLICIT, max_deliver=-1),
    )
    await before.publish("causeway.ingest.job.dA.aQ", b"old")
    for _ in range(2):
        after = (await ingest_transport(client)).jetstream
    await after.publish(keys.ingest_subject(0, "t", "i"), b"new")
    queue = await after.pull_subscribe_bind(keys.ingest_consumer(0), keys.INGEST_STREAM)
    assert [message.data for message in await queue.fetch(2, timeout=5)] == [b"old", b"new"]
    consumers = {consumer.name for consumer in await after.consumers_info(keys.INGEST_STREAM)}
    assert consumers == {keys.ingest_consumer(lane) for lane in range(keys.INGEST_LANES)}


async def test_consumers_of_an_earlier_version_are_updated(client: Client) -> None:
    """The first lane's consumer gets the additional filter for jobs without a lane, although this filter overlaps
    with the filters of that version's consumers.
    """
    jetstream = (await ingest_transport(client)).jetstream
    for lane in range(keys.INGEST_LANES):
        await jetstream.add_consumer(
            keys.INGEST_STREAM,
            ConsumerConfig(
                durable_name=keys.ingest_consumer(lane),
                filter_subject=f"causeway.ingest.job.{lane}.>",
                ack_policy=AckPolicy.EXPLICIT,
                ack_wait=transport.ACK_WAIT,
                max_deliver=-1,
                max_ack_pending=1024,
            ),
        )
    await ingest_transport(client)
    first = (await jetstream.consumer_info(keys.INGEST_STREAM, keys.ingest_consumer(0))).config
    assert first.filter_subjects == [keys.ingest_lane(0), keys.INGEST_WITHOUT_LANE]


async def test_a_repeated_job_is_stored_once(client: Client) -> None:
    """If a gateway repeats a publication because its arrival is unknown, the job exists once."""
    jetstream = (await ingest_transport(client)).jetstream
    subject = keys.ingest_subject(0, "t", "i")
    first, second = [await jetstream.publish(subject, b"job", headers={"Nats-Msg-Id": "1"}) for _ in range(2)]
    assert second.duplicate
    assert first.seq == second.seq
    assert (await jetstream.stream_info(keys.INGEST_STREAM)).state.messages == 1


async def test_acknowledged_messages_survive_a_crash(tmp_path: Path) -> None:
    """After a crash immediately after its acknowledgements, the server has all messages in the same order."""
    content = b"%PDF" * 300_000
    async with nats_server(tmp_path) as url:
        client = await connect(url, "test")
        before = await ingest_transport(client)
        await before.originals.put("o", content)
        await before.jobs.put("j", b"queued")
        acknowledged = await before.jetstream.publish(keys.ingest_subject(0, "t", "i"), b"job")
        closing = asyncio.create_task(client.close())
    await closing
    async with nats_server(tmp_path) as url:
        client = await connect(url, "test")
        after = await ingest_transport(client)
        assert (await after.jobs.get("j")).value == b"queued"
        assert (await after.originals.get("o")).data == content
        (job,) = await (
            await after.jetstream.pull_subscribe_bind(keys.ingest_consumer(0), keys.INGEST_STREAM)
        ).fetch(1, timeout=5)
        assert job.data == b"job"
        assert job.metadata.sequence.stream == acknowledged.seq
        again = await after.jetstream.publish(keys.ingest_subject(0, "t", "i"), b"job")
        assert after.generation(again.seq) > before.generation(acknowledged.seq)
        await client.close()


async def test_generations_go_on_after_a_streams_loss(client: Client) -> None:
    """A stream that was created again counts from 1, and its jobs still have higher generations than all earlier
    ones.
    """
    before = await ingest_transport(client)
    for _ in range(3):
        last = (await before.jetstream.publish(keys.ingest_subject(0, "t", "i"), b"job")).seq
    await before.jetstream.delete_stream(keys.INGEST_STREAM)
    await asyncio.sleep(max(0.0, before.epoch + 1.05 - time.time()))
    after = await ingest_transport(client)
    first = (await after.jetstream.publish(keys.ingest_subject(0, "t", "i"), b"job")).seq
    assert (last, first) == (3, 1)
    assert after.generation(first) > before.generation(last)


moments = st.integers(1_700_000_000, 2**32 - 1)
sequences = st.integers(1, 2**32 - 1)


@given(moments, sequences, moments, sequences)
def test_generations_are_ordered_by_stream_and_sequence(epoch: int, sequence: int, other: int, place: int) -> None:
    """The later stream's job is newer, and within a stream the later job. Each generation fits into 64 bits."""
    unused: Any = None
    one = IngestTransport(unused, unused, unused, unused, unused, epoch).generation(sequence)
    two = IngestTransport(unused, unused, unused, unused, unused, other).generation(place)
    assert (one < two) == ((epoch, sequence) < (other, place))
    assert 0 < one < 2**64


async def test_more_replicas_than_servers_are_refused(client: Client) -> None:
    """A single server cannot keep three copies. The error says so, and nothing is created."""
    with pytest.raises(nats.js.errors.Error, match="replicas"):
        await ingest_transport(client, replicas=3)
    assert await client.jetstream().streams_info() == []


def test_a_message_carries_its_trace() -> None:
    """A job continues the trace of its upload."""
    traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    token = context.attach(telemetry.extract({"traceparent": traceparent}))
    try:
        assert transport.trace_headers() == {"traceparent": traceparent}
    finally:
        context.detach(token)
    assert transport.trace_headers() == {}
