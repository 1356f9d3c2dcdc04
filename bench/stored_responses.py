"""Measures NATS with many stored responses: resources, start time, and the time to delete expired responses."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import nats
from causeway_testing.servers import free_ports
from gateway.clients.response_log import NatsResponseLog
from gateway.clients.responses import NatsResponses
from gateway.domain.response_log import Entry
from gateway.domain.responses import RESPONSE, Stored, new_name
from nats.aio.client import Client
from processes import cpu_seconds, memory_mib
from servicekit import response_keys
from servicekit.broker import Broker
from servicekit.buckets import responses_bucket
from servicekit.deadline import Deadline
from servicekit.principal import Principal
from servicekit.response_streams import response_log

_WRITERS = 64
_USERS = 100
_STORAGE_BYTES = 16 * 2**30
_STREAMS = (response_keys.RESPONSE_LOG_STREAM, f"KV_{response_keys.RESPONSES_BUCKET}")
_MIB = 2**20
_FIRST_EVENTS = 3
_POLL_SECONDS = 0.05


@contextlib.asynccontextmanager
async def _server(directory: Path) -> AsyncIterator[tuple[Client, int, float]]:
    """Start NATS with a directory. Yield a connection, the process id, and the seconds until the streams exist."""
    [port] = free_ports(1)
    command = Broker(directory, port).command()
    config = directory / "nats.conf"
    # 400,000 synced writes would take an hour, and are not measured.
    config.write_text(config.read_text().replace("sync_interval: always", "sync_interval: 2m"))
    begin = time.perf_counter()
    quiet = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(*command, stdout=quiet, stderr=quiet)
    try:
        client = await _connect(port)
        with contextlib.suppress(nats.js.errors.NotFoundError):
            for name in _STREAMS:
                await client.jetstream(timeout=120).stream_info(name)
        yield client, process.pid, time.perf_counter() - begin
        await client.close()
    finally:
        process.terminate()
        await process.wait()


async def _connect(port: int) -> Client:
    end = time.monotonic() + 120
    while True:
        try:
            client = await nats.connect(f"nats://127.0.0.1:{port}", allow_reconnect=False, connect_timeout=5)
            await client.jetstream(timeout=5).account_info()
        except (OSError, nats.errors.Error, nats.js.errors.Error):
            if time.monotonic() > end:
                raise
            await asyncio.sleep(0.02)
        else:
            return client


async def stored_responses(events: bytes, response: dict[str, Any], count: int) -> dict[str, float]:
    """Store a response many times; return the sizes, the memory and the times by name.

    Args:
        events: The events of the response.
        response: The stored form of the response.
        count: The number of stored responses; they belong to a hundred users.
    """
    with TemporaryDirectory(prefix="causeway-bench-") as directory:
        result = await _fill(Path(directory), events, response, count)
        async with _server(Path(directory)) as (client, pid, seconds):
            result |= {"start_s": seconds, "memory_restarted_mib": memory_mib([pid])}
            result |= await _expire(client, pid)
    return result


async def _fill(directory: Path, events: bytes, response: dict[str, Any], count: int) -> dict[str, float]:
    async with _server(directory) as (client, pid, _):
        result = {"memory_empty_mib": memory_mib([pid])}
        bucket = await responses_bucket(client, size=_STORAGE_BYTES)
        jetstream = await response_log(client, size=_STORAGE_BYTES)

        async def get_bucket() -> Any:
            return bucket

        async def get_jetstream() -> Any:
            return jetstream

        store, log = (
            NatsResponses(get_bucket, get_jetstream, limit=count),
            NatsResponseLog(get_jetstream, limit=count),
        )
        numbers = iter(range(count))

        async def fill() -> None:
            for number in numbers:
                user = Principal("tenant", f"user{number % _USERS}@example.com")
                await _store_one(store, log, user, events, response)

        begin = time.perf_counter()
        await asyncio.gather(*(fill() for _ in range(_WRITERS)))
        result["fill_s"] = time.perf_counter() - begin
        for name, label in zip(_STREAMS, ("log", "state"), strict=True):
            state = (await jetstream.stream_info(name)).state
            result[f"{label}_kib"] = state.bytes / count / 1024
        result["memory_filled_mib"] = memory_mib([pid])
        begin = time.perf_counter()
        await _store_one(store, log, Principal("tenant", "last@example.com"), events, response)
        result["store_one_ms"] = (time.perf_counter() - begin) * 1000
        return result


async def _store_one(
    store: NatsResponses, log: NatsResponseLog, user: Principal, events: bytes, response: dict[str, Any]
) -> None:
    """Store a complete answer in three log entries: its beginning, its text and its end."""
    pieces = [piece + b"\n\n" for piece in events.split(b"\n\n")[:-1]]
    last = len(pieces) - 1
    name, deadline = f"{RESPONSE}_{new_name()}", Deadline.after(120)
    ranges = ((0, _FIRST_EVENTS), (_FIRST_EVENTS, last), (last, last + 1))
    position = 0
    stored = Stored(name, "default", {**response, "id": name})
    for first, end in ranges:
        if end > last:
            stored = await store.save(user, stored, deadline) if not stored.revision else stored
            await store.replace(user, replace(stored, object=stored.object), deadline)
        data = b"".join(pieces[first:end])
        entry = Entry("0123456789abcdef.1", first, end - 1, data, ended=end > last)
        position = await log.append(user, name, entry, position, deadline)
        if not stored.revision:
            stored = await store.save(user, stored, deadline)


async def _expire(client: Client, pid: int) -> dict[str, float]:
    """Lower the maximum age, so that all messages expire at once; wait until they are deleted."""
    jetstream = client.jetstream(timeout=120)
    before, begin = cpu_seconds([pid]), time.perf_counter()
    for name in _STREAMS:
        config = (await jetstream.stream_info(name)).config
        # The duplicate window must not be longer than the maximum age.
        await jetstream.update_stream(replace(config, max_age=1.0, duplicate_window=1.0))
    for name in _STREAMS:
        while (await jetstream.stream_info(name)).state.messages:  # noqa: ASYNC110  # another process
            await asyncio.sleep(_POLL_SECONDS)
    return {
        "expiry_s": time.perf_counter() - begin,
        "expiry_cpu_s": cpu_seconds([pid]) - before,
        "memory_expired_mib": memory_mib([pid]),
    }
