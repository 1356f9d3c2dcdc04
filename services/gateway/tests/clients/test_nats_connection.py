"""Closing the connection to NATS. test_ingest.py, test_jobs.py and others test the start of the connection."""

import asyncio
from pathlib import Path

from causeway_testing.servers import eventually, nats_server
from gateway.clients.nats_connection import NatsLink


async def test_the_link_closes_if_the_client_loses_a_cancellation(tmp_path: Path) -> None:
    """The link closes even if a task of the client ignores a cancellation."""

    async def reconnecting() -> None:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            await asyncio.sleep(600)

    async with nats_server(tmp_path) as url, asyncio.timeout(60):
        async with NatsLink(url, retry=0.05) as link:
            await eventually(lambda: link._ingest is not None)
            assert link._client is not None
            task = link._client._reconnection_task = asyncio.create_task(reconnecting())
            await asyncio.sleep(0.01)
        assert task.done()
