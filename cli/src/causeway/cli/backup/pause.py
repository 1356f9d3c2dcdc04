"""Pauses ingest during a backup: jobs are accepted and wait, and no worker gets one."""

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
from servicekit.tasks import ended

_PAUSE = timedelta(seconds=60)
_AGAIN_SECONDS = 15.0
_LOOK_SECONDS = 0.2
_ANSWER_SECONDS = 10.0


@contextlib.asynccontextmanager
async def held(client: Client, patience: float) -> AsyncIterator[bool]:
    """Pause ingest for the block; yield whether the running jobs have ended.

    If this process dies, the server ends the pause after a minute.

    Args:
        client: The operator's connection.
        patience: The longest wait for the running jobs.

    Raises:
        CommandError: The server cannot pause the queue.
    """
    lanes = [lane for lane in range(keys.INGEST_LANES) if await _under_way(client, lane) is not None]
    await _pause(client, lanes)
    holding = asyncio.create_task(_hold(client, lanes))
    try:
        yield await _idle(client, lanes, patience)
        if holding.done():
            holding.result()
    finally:
        holding.cancel()
        await ended(holding)
        for lane in lanes:
            await _set(client, lane, None)


async def workers_wait(client: Client) -> bool:
    """Return whether an ingest worker waits for jobs now."""
    jetstream = client.jetstream(timeout=_ANSWER_SECONDS)
    for lane in range(keys.INGEST_LANES):
        with contextlib.suppress(nats.js.errors.NotFoundError):
            found = await jetstream.consumer_info(keys.INGEST_STREAM, keys.ingest_consumer(lane))
            if found.num_waiting:
                return True
    return False


async def _hold(client: Client, lanes: list[int]) -> None:
    while True:
        await asyncio.sleep(_AGAIN_SECONDS)
        await _pause(client, lanes)


async def _pause(client: Client, lanes: list[int]) -> None:
    until = (datetime.now(UTC) + _PAUSE).isoformat()
    for lane in lanes:
        if not (await _set(client, lane, until)).get("paused"):
            raise CommandError("NATS cannot pause the ingest queue: do the clocks of this machine and NATS agree?")


async def _idle(client: Client, lanes: list[int], patience: float) -> bool:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(patience):
            while True:
                if not any([await _under_way(client, lane) for lane in lanes]):
                    return True
                await asyncio.sleep(_LOOK_SECONDS)
    return False


async def _under_way(client: Client, lane: int) -> int | None:
    """Return the number of a lane's running jobs; None if the lane does not exist yet."""
    try:
        found = await client.jetstream(timeout=_ANSWER_SECONDS).consumer_info(
            keys.INGEST_STREAM, keys.ingest_consumer(lane)
        )
    except nats.js.errors.NotFoundError:
        return None
    return found.num_ack_pending or 0


async def _set(client: Client, lane: int, until: str | None) -> dict[str, Any]:
    subject = f"$JS.API.CONSUMER.PAUSE.{keys.INGEST_STREAM}.{keys.ingest_consumer(lane)}"
    body = json.dumps({"pause_until": until}).encode() if until else b""
    answer: dict[str, Any] = json.loads((await client.request(subject, body, timeout=_ANSWER_SECONDS)).data)
    if error := answer.get("error"):
        raise CommandError(f"NATS cannot pause the ingest queue: {error.get('description', error)}")
    return answer
