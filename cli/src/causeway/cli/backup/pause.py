"""Pauses ingest during a backup: the queue accepts jobs but does not deliver them to workers."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import nats.js.errors
from causeway.cli.errors import CommandError
from nats.aio.client import Client
from servicekit import keys
from servicekit.tasks import cancel_and_wait

_PAUSE = timedelta(seconds=60)
_RENEW_SECONDS = 15.0
_POLL_SECONDS = 0.2
_RESPONSE_SECONDS = 10.0


@contextlib.asynccontextmanager
async def paused(client: Client, max_wait: float) -> AsyncIterator[bool]:
    """Pause ingest for the block; yield whether the running jobs have ended.

    If this process dies, the server ends the pause after a minute.

    Args:
        client: The operator's connection.
        max_wait: Maximum seconds to wait for the running jobs.

    Raises:
        CommandError: The server cannot pause the queue.
    """
    lanes = [lane for lane in range(keys.INGEST_LANES) if await _running_jobs(client, lane) is not None]
    await _pause(client, lanes)
    renewal = asyncio.create_task(_renew(client, lanes))
    try:
        yield await _wait_until_idle(client, lanes, max_wait)
        if renewal.done():
            renewal.result()
    finally:
        await cancel_and_wait(renewal)
        for lane in lanes:
            await _set_pause(client, lane, None)


async def has_waiting_workers(client: Client) -> bool:
    """Return whether an ingest worker waits for jobs now."""
    jetstream = client.jetstream(timeout=_RESPONSE_SECONDS)
    for lane in range(keys.INGEST_LANES):
        with contextlib.suppress(nats.js.errors.NotFoundError):
            found = await jetstream.consumer_info(keys.INGEST_STREAM, keys.ingest_consumer(lane))
            if found.num_waiting:
                return True
    return False


async def _renew(client: Client, lanes: list[int]) -> None:
    while True:
        await asyncio.sleep(_RENEW_SECONDS)
        await _pause(client, lanes)


async def _pause(client: Client, lanes: list[int]) -> None:
    until = (datetime.now(UTC) + _PAUSE).isoformat()
    for lane in lanes:
        if not (await _set_pause(client, lane, until)).get("paused"):
            raise CommandError(
                "NATS does not pause the ingest queue; check that the clocks of this machine and of NATS agree"
            )


async def _wait_until_idle(client: Client, lanes: list[int], max_wait: float) -> bool:
    """Wait for the running jobs; return whether all jobs ended in time."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(max_wait):
            while True:
                if not any([await _running_jobs(client, lane) for lane in lanes]):
                    return True
                await asyncio.sleep(_POLL_SECONDS)
    return False


async def _running_jobs(client: Client, lane: int) -> int | None:
    """Return the number of a lane's running jobs; None if the lane does not exist yet."""
    try:
        found = await client.jetstream(timeout=_RESPONSE_SECONDS).consumer_info(
            keys.INGEST_STREAM, keys.ingest_consumer(lane)
        )
    except nats.js.errors.NotFoundError:
        return None
    return found.num_ack_pending or 0


async def _set_pause(client: Client, lane: int, until: str | None) -> dict[str, Any]:
    subject = f"$JS.API.CONSUMER.PAUSE.{keys.INGEST_STREAM}.{keys.ingest_consumer(lane)}"
    body = json.dumps({"pause_until": until}).encode() if until else b""
    response: dict[str, Any] = json.loads((await client.request(subject, body, timeout=_RESPONSE_SECONDS)).data)
    if error := response.get("error"):
        raise CommandError(f"NATS cannot pause the ingest queue: {error.get('description', error)}")
    return response
