import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme
from causeway_testing.servers import eventually, measured, nats_server
from servicekit import keys, nats
from servicekit.nats import IngestTransport
from servicekit.record_streams import record_streams
from servicekit.stream_levels import STREAMS, StreamLevels
from servicekit.tasks import cancel_and_wait
from servicekit.tls import Certificates


@pytest.fixture
async def transport(tmp_path: Path) -> AsyncIterator[IngestTransport]:
    async with nats_server(tmp_path) as url:
        client = await nats.connect(url, "test")
        yield await nats.ingest_transport(client, stream_bytes=1024 * 1024)
        await client.close()


@contextlib.asynccontextmanager
async def watched(transport: IngestTransport) -> AsyncIterator["asyncio.Task[None]"]:
    """Watch all streams, at short intervals."""
    measured("")
    watching = asyncio.create_task(StreamLevels(transport.client, STREAMS, interval=0.05).watch())
    yield watching
    assert not watching.done()
    await cancel_and_wait(watching)


def level(name: str, label: str) -> float:
    """Return a metric of a lane or a stream; -1 if it is missing."""
    return max((value for labels, value in measured(name) if label in labels.values()), default=-1)


async def test_each_lane_has_its_depth_and_age(transport: IngestTransport) -> None:
    """Each lane has the number of its waiting jobs and the age of the oldest job. Both are 0 for an empty lane."""
    for _ in range(3):
        await transport.jetstream.publish(keys.ingest_subject(1, "t", "i"), b"")
    async with watched(transport):
        await eventually(lambda: level("causeway_ingest_queue_age_seconds", "1") > 0.3)
        assert level("causeway_ingest_queue_depth", "1") == 3
        assert level("causeway_ingest_queue_age_seconds", "1") < 30
        assert level("causeway_ingest_queue_depth", "0") == 0
        assert level("causeway_ingest_queue_age_seconds", "0") == 0


async def test_streams_have_their_messages_and_limits(transport: IngestTransport) -> None:
    """The first dead letter is visible. A stream has its limit, and a bucket without a limit has none."""
    async with watched(transport):
        await eventually(lambda: level("causeway_nats_stream_messages", keys.INGEST_DEAD_STREAM) == 0)
        await transport.jetstream.publish(keys.ingest_dead_subject("t", "i"), b"job")
        await eventually(lambda: level("causeway_nats_stream_messages", keys.INGEST_DEAD_STREAM) == 1)
        assert level("causeway_nats_stream_size_bytes", keys.INGEST_DEAD_STREAM) > 3
        assert level("causeway_nats_stream_limit_bytes", keys.INGEST_STREAM) == 1024 * 1024
        assert level("causeway_nats_stream_limit_bytes", f"OBJ_{keys.ORIGINALS_BUCKET}") == -1


async def test_the_horizon_follows_the_rate_of_records(transport: IngestTransport) -> None:
    """A stream that fills by a tenth in a second keeps records for about ten seconds, although the age limit is 30
    days. An empty stream keeps them for 30 days.
    """
    await record_streams(transport.client, days=30, usage_bytes=1024 * 1024, audit_bytes=1024 * 1024)
    async with watched(transport):
        await eventually(lambda: level("causeway_records_horizon_seconds", keys.USAGE_STREAM) == 30 * 86400)
        for _ in range(10):
            await transport.jetstream.publish(keys.usage_subject("t"), b"x" * 10_000)
        await eventually(lambda: 0 < level("causeway_records_horizon_seconds", keys.USAGE_STREAM) < 60)
        assert level("causeway_records_max_age_seconds", keys.USAGE_STREAM) == 30 * 86400
        assert level("causeway_records_horizon_seconds", keys.AUDIT_STREAM) == 30 * 86400


async def test_the_expiry_of_the_certificate_of_nats_is_measured(tmp_path: Path) -> None:
    """The metric is the expiry of the server's certificate, not of the client's."""
    authority, expires = trustme.CA(), datetime.now(UTC).replace(microsecond=0) + timedelta(days=9)
    authority.cert_pem.write_to_path(tmp_path / "ca.crt")
    for name, end in (("server", expires), ("client", expires + timedelta(days=1))):
        issued = authority.issue_cert("127.0.0.1", not_after=end)
        issued.private_key_pem.write_to_path(tmp_path / f"{name}.key")
        (tmp_path / f"{name}.crt").write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    files = f'cert_file: "{tmp_path}/server.crt", key_file: "{tmp_path}/server.key", ca_file: "{tmp_path}/ca.crt"'
    async with nats_server(tmp_path / "nats", extra=f"tls {{ {files}, verify: true }}\n") as url:
        certificates = Certificates(tmp_path / "client.crt", tmp_path / "client.key", tmp_path / "ca.crt")
        client = await nats.connect(url, "test", certificates=certificates)
        async with watched(await nats.ingest_transport(client)):
            name = "causeway_nats_certificate_not_after_seconds"
            await eventually(lambda: measured(name) == [({}, expires.timestamp())])
        await client.close()


async def test_an_unavailable_broker_has_no_values(transport: IngestTransport) -> None:
    """An outage does not end the watch, and old values are no longer reported."""
    async with watched(transport):
        await eventually(lambda: level("causeway_nats_stream_messages", keys.INGEST_STREAM) == 0)
        await transport.client.close()
        await eventually(lambda: level("causeway_nats_stream_messages", keys.INGEST_STREAM) == -1)
