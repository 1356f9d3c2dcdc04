import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from ingest.adapters.levels import QueueLevels
from servicekit import keys, nats
from servicekit.nats import IngestTransport
from servicekit.testing import eventually, measured, nats_server


@pytest.fixture
async def transport(tmp_path: Path) -> AsyncIterator[IngestTransport]:
    async with nats_server(tmp_path) as url:
        client = await nats.connect(url, "test")
        yield await nats.ingest_transport(client)
        await client.close()


def level(name: str, lane: int) -> float:
    """A metric of a lane."""
    return max((value for labels, value in measured(name) if labels["lane"] == str(lane)), default=-1)


async def test_depth_and_age(transport: IngestTransport) -> None:
    """Of each lane: what waits, and since when the oldest of it does; an empty lane has neither."""
    measured("")
    for _ in range(3):
        await transport.jetstream.publish(keys.ingest_subject(1, "t", "i"), b"")
    levels = QueueLevels(transport, every=0.05)
    stop = asyncio.Event()
    watching = asyncio.create_task(levels.watch(stop))
    await eventually(lambda: level("causeway_ingest_queue_age_seconds", 1) > 0.3)
    assert level("causeway_ingest_queue_depth", 1) == 3
    assert level("causeway_ingest_queue_age_seconds", 1) < 30
    assert level("causeway_ingest_queue_depth", 0) == 0
    assert level("causeway_ingest_queue_age_seconds", 0) == 0
    stop.set()
    await asyncio.wait_for(watching, 5)


async def test_a_broker_that_is_away(transport: IngestTransport) -> None:
    """Is no end of the watch."""
    stop = asyncio.Event()
    watching = asyncio.create_task(QueueLevels(transport, every=0.01).watch(stop))
    await transport.client.close()
    await asyncio.sleep(0.1)
    assert not watching.done()
    stop.set()
    await asyncio.wait_for(watching, 5)
